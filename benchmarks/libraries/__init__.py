"""benchmarks.libraries: small programs on other people's libraries, under eager, torch.compile and Argand.

``make libraries`` makes an environment of its own and runs them; ``ARGS="--only lightning --rival"``. Each must equal
eager; graph breaks, recompiles, the first call and later calls are counted beside torch.compile's.
"""
