"""Functions that PyTorch and the Array API standard define differently, with PyTorch's parameters and results."""

from __future__ import annotations

import tandem as td
import tandem.ops as F
from tandem.ops.define import as_tensor
from tandem.ops.extras import store

Tensor = td.Tensor


def std(input, dim=None, unbiased=None, keepdim=False, *, correction=None, out=None, axis=None, keepdims=False):
    """Standard deviation with a correction of 1 unless given.

    >>> td.torch.std(td.tensor([1.0, 2.0, 3.0]))
    tensor(1.)
    """
    dim, keepdim = (dim if axis is None else axis), keepdim or keepdims
    return store("std", as_tensor("std", "input", input).std(dim, unbiased, keepdim, correction=correction), out)


def var(input, dim=None, unbiased=None, keepdim=False, *, correction=None, out=None, axis=None, keepdims=False):
    """Variance with a correction of 1 unless given.

    >>> td.torch.var(td.tensor([1.0, 2.0, 3.0]))
    tensor(1.)
    """
    dim, keepdim = (dim if axis is None else axis), keepdim or keepdims
    return store("var", as_tensor("var", "input", input).var(dim, unbiased, keepdim, correction=correction), out)


def equal(input, other) -> bool:
    """Whether two tensors have the same shape and elements. Element by element: torch.eq.

    >>> td.torch.equal(td.ones(2), td.ones(3))
    False
    """
    return F.array_equal(input, other)


def nonzero(input, *, as_tuple: bool = False, out=None):
    """Positions of the elements that are not zero: one row each, or a tensor for each axis.

    >>> td.torch.nonzero(td.tensor([0, 5, 7]))
    tensor([[1],
            [2]])
    """
    if as_tuple and input.ndim == 0:
        return F.nonzero(input.reshape(1), as_tuple=True)
    return store("nonzero", F.nonzero(input, as_tuple=as_tuple), out)


def sort(input, dim=-1, descending=False, stable=False, *, out=None):
    """(values, indices) in ascending order along an axis.

    >>> td.torch.sort(td.tensor([3, 1, 2])).indices
    tensor([1, 2, 0])
    """
    return store("sort", F.sort(input, dim, descending, stable), out)


def meshgrid(*tensors, indexing: str = "ij"):
    """Coordinates on a grid, one tensor for each axis, which stay in order.

    >>> [t.shape for t in td.torch.meshgrid(td.arange(2), td.arange(3))]
    [(2, 3), (2, 3)]
    """
    return tuple(F.meshgrid(*tensors, indexing=indexing))


def _extremum(name: str, method):
    def extremum(input, dim=None, keepdim=False, *, other=None, out=None):
        if other is not None:
            dim = other
        made = method(input, dim, keepdim)
        return store(name, made, out)

    extremum.__name__ = extremum.__qualname__ = name
    kind = {"max": "largest", "min": "smallest"}[name]
    extremum.__doc__ = f"""The {kind} element; with dim, (values, indices) along it; with a tensor, {name}imum with it.

    >>> td.torch.{name}(td.tensor([[1, 5], [7, 7]]), 1).indices
    tensor([{1 if name == "max" else 0}, 0])
    """
    return extremum


max, min = _extremum("max", Tensor.max), _extremum("min", Tensor.min)


def take(input, index, *, out=None):
    """Elements of the flattened tensor at positions.

    >>> td.torch.take(td.tensor([[1, 2], [3, 4]]), td.tensor([3, 0]))
    tensor([4, 1])
    """
    return store("take", input.take(index), out)


def range(start=0, end=None, step=1, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    """Numbers from start to end, which is included. PyTorch advises torch.arange instead.

    >>> td.torch.range(1, 3)
    tensor([1., 2., 3.])
    """
    return store("range", F.range(start, end, step, dtype=dtype, device=device, requires_grad=requires_grad), out)


def is_storage(obj) -> bool:
    """False: memory has no object of its own here."""
    return False


__all__ = ["equal", "is_storage", "max", "meshgrid", "min", "nonzero", "range", "sort", "std", "take", "var"]
