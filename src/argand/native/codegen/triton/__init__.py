"""native.codegen.triton: loop nests as Triton source, for GPUs. Nothing here imports Triton: the text is all there is."""
