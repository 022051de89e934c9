"""Tensors as the runtime describes them (src/operators/describe.cc), as types and layouts of a graph's inputs."""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen import Layout
from tandem.graph.ir import Type
from tandem.tracing.describe import DENSE, STRIDED, TensorSpec


def input_type(description: TensorSpec, size) -> tuple[Type, Layout | None]:
    """Type and layout of a described tensor; `size(value, origin kind, axis)` makes the sizes and strides.

    Sizes of 1 are literal, because broadcasting depends on them: whoever looks plans up tells them apart.
    """
    shape, strides, order = description.shape, description.strides, description.order
    dims = tuple(1 if n == 1 else size(n, "size", axis) for axis, n in enumerate(shape))
    layout = None  # row-major
    if description.layout == DENSE:  # dense under a permutation: strides follow from the sizes
        dense, step = [0] * len(dims), 1
        for axis in reversed(order):
            dense[axis] = step
            step = step * dims[axis]
        layout = Layout(tuple(dense), order[-1] if order else None, order)
    elif description.layout == STRIDED:
        known = tuple(
            0 if n == 1 or s == 0 else 1 if s == 1 else size(s, "stride", axis)
            for axis, (n, s) in enumerate(zip(shape, strides, strict=True))
        )
        unit = next((i for i, (n, s) in enumerate(zip(shape, strides, strict=True)) if n != 1 and s == 1), None)
        layout = Layout(known, unit, None)
    return Type(dtypes.ALL[description.dtype], dims), layout
