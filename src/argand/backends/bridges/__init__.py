"""backends.bridges: other compilers behind our contract, each imported only when chosen."""
