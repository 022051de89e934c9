"""shape: sizes as tensors, which operators take as sizes again."""

import operator

import numpy as np

import tandem as _td
from tandem import dtypes
from tandem.errors import UnsupportedError
from tandem.graph.ir import revise
from tandem.graph.symbolic import Sym
from tandem.session.build import as_tensor, graph_of
from tandem.session.graph import SymbolicTensor
from tandem.session.tensor_shape import UnknownDimension
from tandem.v1.wrap import in_graph, operand


def _calculates(name: str):
    """An operator of sizes, whose result is a size if its operands are."""
    of_sizes, of_tensors = getattr(operator, name.strip("_").removeprefix("r")), getattr(SymbolicTensor, name)

    def apply(self, other):
        known = other.size if isinstance(other, SizeTensor) else other
        if isinstance(known, bool) or not isinstance(known, (int, Sym)):
            return of_tensors(self, other)
        pair = (known, self.size) if name.startswith("__r") else (self.size, known)
        return SizeTensor.of(self.graph, of_sizes(*pair), self.dtype)

    return apply


class SizeTensor(SymbolicTensor):
    """A size as an integer tensor."""

    __slots__ = ("size",)

    @classmethod
    def of(cls, graph, size, dtype):
        with graph:
            made = _td.full((), size, dtype=dtype)
        return _become(cls, made, "size", size)

    __add__, __radd__, __mul__, __rmul__, __sub__, __rsub__, __floordiv__ = map(
        _calculates, ("__add__", "__radd__", "__mul__", "__rmul__", "__sub__", "__rsub__", "__floordiv__")
    )


class ShapeTensor(SymbolicTensor):
    """Sizes as a tensor of integers."""

    __slots__ = ("sizes",)

    @classmethod
    def of(cls, graph, sizes: tuple, dtype):
        if all(isinstance(d, int) for d in sizes):
            made = as_tensor(graph, np.array(sizes, dtype=np.int64), dtype)
        else:
            with graph:
                made = _td.stack([_td.full((), d, dtype=dtype) for d in sizes])
        return _become(cls, made, "sizes", tuple(sizes))

    def __getitem__(self, key):
        if isinstance(key, int):
            return SizeTensor.of(self.graph, self.sizes[key], self.dtype)
        if isinstance(key, slice) and all(k is None or isinstance(k, int) for k in (key.start, key.stop, key.step)):
            return ShapeTensor.of(self.graph, self.sizes[key], self.dtype)
        return super().__getitem__(key)


def _become(cls, made: SymbolicTensor, name: str, value):
    """The result of a node, as one that knows the sizes it holds."""
    node = made.node
    result = cls(node, 0, made.type)
    revise(result, name, value)
    revise(node, "outputs", (result,))
    return result


@in_graph
def shape(input, out_type=dtypes.int32):
    """Sizes of a tensor, in this run. It, its items and slices, and sums and products of these with whole numbers can be given to
    operators that take sizes: reshape, zeros, fill, tile, range, random_normal and the like."""
    x = operand(input)
    return ShapeTensor.of(graph_of(x), tuple(getattr(x, "shape", ())), dtypes.as_dtype(out_type))


@in_graph
def size(input, out_type=dtypes.int32):
    """How many elements a tensor has."""
    x = operand(input)
    count = 1
    for d in getattr(x, "shape", ()):
        count = count * d
    return SizeTensor.of(graph_of(x), count, dtypes.as_dtype(out_type))


@in_graph
def rank(input):
    """How many axes a tensor has."""
    return as_tensor(graph_of(), operand(input).ndim, dtypes.int32)


def sizes(op: str, given) -> list:
    """Sizes that an operator is given: numbers, what `shape` gives, constants, or lists of these."""
    if isinstance(given, ShapeTensor):
        return list(given.sizes)
    if isinstance(given, np.ndarray):
        given = given.tolist()
    elif _is_constant(given) and given.ndim:
        given = given.node.op.tensor.tolist()
    return [_size(op, d) for d in (given if isinstance(given, (list, tuple)) else [given])]


def _is_constant(x) -> bool:
    return isinstance(x, SymbolicTensor) and x.node.op.is_held


def _size(op: str, d):
    if isinstance(d, SizeTensor):
        return d.size
    if _is_constant(d) and d.ndim == 0:
        d = d.node.op.tensor.item()
    if isinstance(d, (Sym, int)):
        return d if isinstance(d, Sym) else int(d)
    if isinstance(d, np.integer):
        return int(d)
    unknown = d is None or isinstance(d, UnknownDimension)
    raise UnsupportedError(
        op,
        "a size is None"
        if unknown
        else f"{d!r} is given as a size; a size that a run computes from values is not supported",
        fix="use tf.shape(x)[axis], which a run knows"
        if unknown
        else "use numbers, or sizes of tensors: tf.shape(x)[axis]",
    )
