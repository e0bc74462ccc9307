"""differences: what a call gives and changes, compared with what eager gives and changes."""
