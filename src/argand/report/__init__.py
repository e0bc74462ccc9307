"""report: what the compiler did and how well, for people to read."""
