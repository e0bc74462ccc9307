"""native.codegen.llvm: emission of LLVM IR as text, and the engine that compiles it."""
