"""autograd: torch-level graphs in, functional aten graphs out, and the glue to torch's autograd."""
