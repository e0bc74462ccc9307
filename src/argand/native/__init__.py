"""native: aten graphs become fused machine code. Entry: ``native.compile.compile_graph``."""
