"""All programs of the strangers."""
