"""Models to and from ONNX files: `td.onnx.load(path)` gives a module, `td.onnx.save(model, args, path)` writes one.

Needs the package onnx (`pip install tandem-dl[onnx]`).
"""

from tandem.onnx.module import Model, load
from tandem.onnx.save import save

__all__ = ["Model", "load", "save"]
