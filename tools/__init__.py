"""tools: checks and generators a contributor or CI runs; no part of the product."""
