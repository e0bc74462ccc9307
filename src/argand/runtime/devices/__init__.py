"""runtime.devices: launch plans on GPUs, in Python: kernels by Triton, everything else by torch on the device."""
