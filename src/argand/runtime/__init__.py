"""runtime: call time. Guard evaluation, code cache, kernel launch, arena; with the C extension."""
