"""benchmarks.language: small programs, and what becomes of each under Argand and under torch.compile.

One module per area; each registers its programs by the decorators of ``benchmarks.language.program``:

- ``@program(make_inputs)`` over a plain function: it is called in eager and compiled, and results, gradients and
  changed inputs are compared;
- ``@scenario`` over a function of the compiler: it builds what it wants (modules, optimizers, several calls), compiles
  it by ``compile(fn)``, and returns whatever must be equal to what it returns when ``compile`` gives back its argument.

``python -m benchmarks.language [--area X] [--rival]`` prints the table.
"""
