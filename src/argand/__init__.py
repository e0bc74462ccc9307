"""Argand compiles PyTorch programs for CPUs."""
