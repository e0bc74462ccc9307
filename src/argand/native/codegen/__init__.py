"""native.codegen: loop nests become LLVM text and machine code."""
