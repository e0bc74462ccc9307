"""native.ir: the two languages of the code generator, tensor IR and loop IR."""
