"""capture.outside: the world around a trace: what values from outside are taken for, where they came from, what is written to them."""
