"""Text cases: what a stage makes of a small program, in files a reader learns the stage from (see README.md)."""
