"""capture.interpret: frames, instructions and calls: the interpreter of a trace."""
