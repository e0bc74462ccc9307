"""native.contract: matrix products as kernels of our own: which ones, and what they take along."""
