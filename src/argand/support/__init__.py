"""support: errors, options, events and logs. Standard library only; every room may import it."""
