"""capture.record: the graph of a trace, written while fakes compute its types."""
