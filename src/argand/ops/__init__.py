"""ops: what each aten op means: its kind, type rule and decomposition, one row each."""
