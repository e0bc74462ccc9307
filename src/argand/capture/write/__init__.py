"""capture.write: the text of a compiled function: values made again, effects, checks, what comes after a break."""
