"""Sizes that a file refuses, as the graph it was written from does (Note [Conditions] in tandem/export/conditions.py).

ONNX has no assertions. A result is taken as the only element of an axis, at an index that lies beyond it where a condition fails:
then the run ends with an error, which gives the name of the node, and that is the reason.
"""

from __future__ import annotations

import numpy as np

from tandem import dtypes
from tandem.graph.symbolic import Symbols


def guarded(writer, symbols: Symbols, result: str) -> str:
    """The result, which is there only for sizes that the graph is right for."""
    for (relation, expression), reason in symbols.reasons.items():
        size, zero = writer.size(expression), writer.scalar(0, dtypes.int64)
        fails = writer.emit("Equal" if relation in ("!=", "==") else "Less", [size, zero])
        if relation in ("==", "<"):
            fails = writer.emit("Not", [fails])
        index = writer.emit("Cast", [fails], to=writer.onnx.TensorProto.INT64)
        apart = writer.emit("Unsqueeze", [result, writer.constant(np.array([0], np.int64))])
        result = writer.emit("Gather", [apart, index], axis=0)
        writer.nodes[-1].name = f"{reason} ({result})"  # names must differ
    return result
