"""benchmarks.peers: steady state beside ONNX Runtime and OpenVINO (``python -m benchmarks peers``)."""
