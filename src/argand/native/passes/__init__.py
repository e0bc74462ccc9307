"""native.passes: rewrites of tensor IR, pure functions in one ordered table."""
