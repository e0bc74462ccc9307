"""native.lower: aten graphs become tensor IR; one row per aten op, split by family."""
