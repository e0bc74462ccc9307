"""capture.finish: a trace that has ended becomes a graph, guards and a compiled function."""
