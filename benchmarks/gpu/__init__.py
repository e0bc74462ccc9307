"""benchmarks.gpu: loop nests as Triton kernels, without a GPU (``make gpu``).

``python -m benchmarks.gpu`` runs them by Triton's interpreter beside the LLVM kernels of the same nests,
``python -m benchmarks.gpu.targets`` compiles them for devices, ``python -m benchmarks.gpu.beside`` shows them beside
inductor's. Speed is measured by none of these: that needs a device.
"""
