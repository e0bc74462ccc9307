"""CPython's own tests of its language, run under the compiler: ``make cpython``.

They lie in the library of each interpreter (``lib/python3.X/test``) and know every corner of the language. Each test
method runs as Python runs it and under ``argand.compile(backend="eager")``, inlined between tensor work; what comes
out must be the same. A difference is a defect of capture, or stands in `reasons` with the cause.
"""
