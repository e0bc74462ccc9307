"""capture.interpret.opcodes: what each instruction does, by family. Each handler gives None or the next index."""
