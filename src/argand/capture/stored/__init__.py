"""capture.stored: captured frames kept on disk (decision 0011). Nothing here imports the interpreter."""
