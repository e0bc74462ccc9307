"""capture.rules: what functions do in a trace that are not interpreted: builtins, torch, what users marked."""
