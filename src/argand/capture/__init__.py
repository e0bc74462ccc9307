"""capture: CPython frames become torch.fx graphs, guards, and code that replays their side effects.

In: a frame (code, values of its variables, globals). Out: `trace.Captured`, from which runtime makes an entry.
"""
