"""backends: every compiler that speaks the contract, by name.

A backend is a function ``(gm, example_inputs) -> callable``. This room keeps the registry, the
debugging ladder, ahead-of-time autograd as a backend factory, and the bridges to other compilers.
"""
