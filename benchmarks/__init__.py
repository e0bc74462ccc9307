"""benchmarks: measures Argand beside eager and torch.compile, and sweeps it over real programs."""
