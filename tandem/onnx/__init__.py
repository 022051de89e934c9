"""Models to and from ONNX files: `td.onnx.load(path)` gives a module.

Needs the package onnx (`pip install tandem-dl[onnx]`).
"""

from tandem.onnx.module import Model, load

__all__ = ["Model", "load"]
