"""How a primitive is written as ONNX nodes.

    @writes("softmax")
    def softmax(w, node, x):
        return w.emit("Softmax", [x], axis=node.op.axis)

A writer takes the Writer, the node, and the ONNX names of its inputs, and gives the name of its result, or a tuple of names.
"""

from __future__ import annotations

WRITERS: dict = {}


def writes(*names: str):
    def register(function):
        for name in names:
            if name in WRITERS:
                raise ValueError(f"{name} has two writers")
            WRITERS[name] = function
        return function

    return register
