"""fold_constants: what depends on constants only is computed now.

Only operators whose result is one definite number in every arithmetic that we have: sums, products, comparisons and the like, in
the very precision of the graph. exp and its kin are left to the kernels, whose last bit is their own.
"""

from __future__ import annotations

import math
import struct

import tandem.ops as F
from tandem import dtypes
from tandem.graph.ir import Graph, Value
from tandem.ops.create import Constant, Size
from tandem.ops.define import Elementwise
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild
from tandem.passes.simplify import same


@graph_pass
def fold_constants(graph: Graph) -> Graph:
    return rebuild(graph, _visit)


_MOVED = {"reshape", "expand", "permute"}  # what a constant may be seen through
_STILL = {"constant", *_MOVED}


def _visit(node, inputs):
    op = node.op
    if isinstance(op, Size) and type(op.value) is int:
        return _constant(op.value, op.dtype)
    if not isinstance(op, Elementwise):
        return None
    if not any([v.op.name in _STILL for v in inputs]):  # noqa: C419
        return None
    inputs = tuple(_scalar(v, node.outputs[0], inputs) for v in inputs)
    if all(isinstance(v.op, Constant) for v in inputs) and node.outputs[0].ndim == 0:
        folded = evaluate(op, [v.op.value for v in inputs], [v.dtype for v in inputs], node.outputs[0].dtype)
        if folded is not None:
            return _constant(folded, node.outputs[0].dtype)
    return op(*inputs) if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)) else None


def _scalar(value: Value, out: Value, inputs) -> Value:
    """A constant spread over a shape as the constant itself, where another operand has the shape: kernels then load nothing."""
    bare = value
    while bare.op.name in _MOVED:
        bare = bare.node.inputs[0]
    if bare is value or not isinstance(bare.op, Constant):
        return value
    return bare if any(v is not value and same(v.shape, out.shape) and not _spread(v) for v in inputs) else value


def _spread(value: Value) -> bool:
    while value.op.name in _MOVED:
        value = value.node.inputs[0]
    return isinstance(value.op, Constant)


def _constant(number, dtype: dtypes.DType) -> Value:
    return F.Constant(number, dtype)()


_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}


def to_dtype(number, dtype: dtypes.DType):
    """number as the nearest of dtype (integers wrap), or None where we would not know."""
    if dtype.kind == "bool":
        return bool(number)
    if dtype.is_integer:
        if isinstance(number, float):
            if not math.isfinite(number) or abs(number) >= 2**31:  # what happens out of range is the processor's affair
                return None
            number = math.trunc(number)
        bits = _BITS[dtype.name]
        number = int(number) % 2**bits
        return number - 2**bits if dtype.kind == "int" and number >= 2 ** (bits - 1) else number
    if dtype.name not in ("float32", "float64") or (isinstance(number, int) and abs(number) > 2**53):
        return None
    number = float(number)
    if dtype is dtypes.float32:
        try:
            number = struct.unpack("f", struct.pack("f", number))[0]
        except OverflowError:
            number = math.copysign(math.inf, number)
    return number


def evaluate(op, numbers: list, types: list, dtype: dtypes.DType):
    """op on these constants, or None where it is not folded."""
    if op.fold is None or dtype.is_complex or any(t.is_complex for t in types):
        return None
    if op.rounds and (dtype.kind == "bool" or (dtype.itemsize == 2 and dtype.is_floating)):
        return None
    if any(isinstance(n, float) and n != n for n in numbers) and not isinstance(op, (F.Where, F.Copy)):
        return None
    # float64 has more than twice the digits of float32, so rounding the float64 result once more gives the float32 one
    exact = [to_dtype(n, t) for n, t in zip(numbers, types, strict=True)]
    result = None if None in exact else op.fold(*exact)
    return None if result is None else to_dtype(result, dtype)
