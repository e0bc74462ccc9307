"""cli: the command line, ``argand ...`` or ``python -m argand``."""
