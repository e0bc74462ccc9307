"""capture.objects: attributes, operators, methods and generators of the values of a trace, with the rules of Python."""
