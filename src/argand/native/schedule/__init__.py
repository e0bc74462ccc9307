"""native.schedule: which values get memory, which ops share a kernel, and the loops of each kernel."""
