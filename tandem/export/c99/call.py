"""A library call on its way to C: operands with known sizes and strides, and a function that its routine writes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tandem.codegen.c.ops import TYPE
from tandem.dtypes import DType
from tandem.errors import UnsupportedError
from tandem.export.c99.text import Text


class Operand:
    """name: of the parameter that points to its first element; constant: its elements, if it is a weight that nobody else reads."""

    __slots__ = ("constant", "dtype", "name", "shape", "strides")

    def __init__(self, name: str, dtype: DType, shape: tuple, strides: tuple, constant: np.ndarray | None = None):
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.constant = constant

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


class Call:
    """inputs, outputs: operands; None for a result that nobody reads. ints, floats: attributes of the routine.

    packed: inputs that are replaced by a rearranged copy, made when the program is exported -> the copy
    scratch: (type, elements) of memory that the call needs while it runs; its parameter is `scratch`
    """

    def __init__(
        self, text: Text, op, inputs: list[Operand], outputs: list[Operand | None], ints: tuple, floats: tuple
    ):
        self.text = text
        self.op = op
        self.inputs = inputs
        self.outputs = outputs
        self.ints = ints
        self.floats = floats
        self.packed: dict[int, np.ndarray] = {}
        self.scratch: tuple[DType, int] | None = None
        self.overlaps = False  # whether a result may lie where an operand lies
        self.fails = False  # whether it returns an error code

    def pack(self, index: int, arrange: Callable[[np.ndarray], np.ndarray]) -> Operand:
        """A constant operand in another order."""
        old = self.inputs[index]
        made = np.ascontiguousarray(arrange(old.constant))
        self.packed[index] = made
        strides = tuple(s // made.itemsize for s in made.strides)
        self.inputs[index] = new = Operand(old.name, old.dtype, made.shape, strides)
        return new

    def require_real(self):
        if any(x is not None and x.dtype.is_complex for x in (*self.inputs, *self.outputs)):
            raise UnsupportedError("export.c", f"{self.op.name} of complex numbers has no C routine")

    def parameters(self) -> list[str]:
        sole = "" if self.overlaps else " restrict"
        made = [f"const {self.text.ops.type(x.dtype)}*{sole} {x.name}" for x in self.inputs]
        made += [f"{self.text.ops.type(x.dtype)}*{sole} {x.name}" for x in self.outputs if x is not None]
        if self.scratch is not None:
            made.append(f"{TYPE[self.scratch[0]]}*{sole} scratch")
        return made
