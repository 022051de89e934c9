"""Symbolic functions of PyTorch's ONNX exporter by operator set: packages import the module; its functions are not here."""
