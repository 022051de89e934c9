"""Functions that PyTorch and the Array API standard define differently, with PyTorch's parameters and results."""

from __future__ import annotations

import math
from builtins import any as any_

import tandem as td
import tandem.ops as F
from tandem.errors import DTypeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.ops.define import as_tensor
from tandem.ops.extras import store
from tandem.ops.prepare import normalize_axes
from tandem.torch.adapt import named, of_tensors, taking_out

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
        if not isinstance(input, (Tensor, Value)):
            raise DTypeError(
                name, f"input is a {type(input).__name__}; it must be a tensor", fix="use torch.tensor(...)"
            )
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


def arange(
    start=0, end=None, step=1, *, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False
):
    """Evenly spaced numbers from start up to, not including, end.

    >>> td.torch.arange(1, 4)
    tensor([1, 2, 3])
    """
    first, last = (0, start) if end is None else (start, end)
    if any_(isinstance(n, float) and not math.isfinite(n) for n in (first, last, step)):
        raise ValueRangeError("arange", f"{first}, {last} and {step} must be finite")
    if (last - first) * step < 0:
        raise ValueRangeError("arange", f"no step of {step} leads from {first} to {last}")
    return store("arange", F.arange(start, end, step, dtype=dtype, device=device, requires_grad=requires_grad), out)


def constant_pad_nd(input, pad, value=0):
    """pad with a constant.

    >>> td.torch.constant_pad_nd(td.ones(2), (1, 0))
    tensor([0., 1., 1.])
    """
    return F.pad(input, pad, "constant", value)


def gradient(input, *, spacing=None, dim=None, edge_order=1):
    """Derivatives of a sampled function along axes (all by default), one tensor each.

    >>> td.torch.gradient(td.tensor([1.0, 4.0, 9.0]))
    (tensor([3., 4., 5.]),)
    """
    if dim is not None and not isinstance(dim, int) and len(set(dim)) != len(tuple(dim)):
        raise ValueRangeError("gradient", f"dim {tuple(dim)} names an axis twice")
    return F.gradient(input, spacing=1 if spacing is None else spacing, axis=dim, edge_order=edge_order)


def _sum_dtype(input, dtype):
    """Unsigned integers add up in int64, as all integers do."""
    return td.int64 if dtype is None and input.dtype.kind == "uint" and input.dtype is not td.uint64 else dtype


def _wide(name: str, function):
    def total(input, *args, dtype=None, **kwargs):
        if type(input) is Tensor and input.dtype.kind != "uint":
            return function(input, *args, **kwargs) if dtype is None else function(input, *args, dtype=dtype, **kwargs)
        return function(input, *args, dtype=_sum_dtype(as_tensor(name, "input", input), dtype), **kwargs)

    total.__name__ = total.__qualname__ = name
    total.__doc__ = f"td.{name}, of unsigned integers in int64."
    return total


sum, prod, cumsum, cumprod, nansum = (
    _wide(name, getattr(F, name)) for name in ("sum", "prod", "cumsum", "cumprod", "nansum")
)


def trace(input, *, out=None):
    """The sum of the diagonal; of unsigned integers in int64.

    >>> td.torch.trace(td.tensor([[200, 0], [0, 100]], dtype=td.uint8))
    tensor(300)
    """
    dtype = _sum_dtype(as_tensor("trace", "input", input), None)
    made = F.trace(input if dtype is None else input.to(dtype))
    return made if out is None else store("trace", made, out)


def _bytes(name: str, function):
    def asked(input, *args, **kwargs):
        made = function(input, *args, **kwargs)
        return made.to(td.uint8) if input.dtype is td.uint8 and kwargs.get("out") is None else made

    asked.__name__ = asked.__qualname__ = name
    asked.__doc__ = f"td.{name}; of uint8, which were PyTorch's truth values once, in uint8."
    return asked


all, any = _bytes("all", F.all), _bytes("any", F.any)


def _all_axes(name: str, function):
    def reduced(input, dim=(), keepdim=False, *, out=None):
        axes = None if isinstance(dim, (tuple, list)) and not dim else dim
        return function(input, axes, keepdim) if out is None else function(input, axes, keepdim, out=out)

    reduced.__name__ = reduced.__qualname__ = name
    reduced.__doc__ = f"td.{name} over axes; over all of them if dim is ()."
    return reduced


def _of_nan(name: str, method):
    def sign(input, *, out=None):
        return store(name, method(as_tensor(name, "input", input)), out)

    sign.__name__ = sign.__qualname__ = name
    sign.__doc__ = "td.sign, but 0 for NaN."
    return sign


sign, sgn = _of_nan("sign", Tensor.sign), _of_nan("sgn", Tensor.sgn)


amax, amin = _all_axes("amax", F.amax), _all_axes("amin", F.amin)


def complex(real, imag, *, out=None):
    """Complex numbers of their parts, which must have one dtype.

    >>> td.torch.complex(td.ones(1), td.zeros(1))
    tensor([1.+0.j])
    """
    for part in (real, imag):
        if not isinstance(part, Tensor) or not part.dtype.is_floating or part.dtype is not real.dtype:
            kinds = ", ".join(str(getattr(p, "dtype", type(p).__name__)) for p in (real, imag))
            raise DTypeError("complex", f"the parts are {kinds}; both must be tensors of one floating dtype")
    if out is not None and out.dtype is not td.promote_types(real.dtype, td.complex64):
        raise DTypeError("complex", f"out is {out.dtype}; parts of {real.dtype} make another complex dtype")
    return td.complex(real, imag) if out is None else td.complex(real, imag, out=out)


def is_storage(obj) -> bool:
    """False: memory has no object of its own here."""
    return False


# -- PyTorch's names for parameters that are called otherwise here

_NAMED = {
    "cholesky_inverse": "input upper", "cholesky_solve": "input input2 upper", "dot": "input tensor|other", "frexp": "input|a",
    "geqrf": "input", "lu": "input|A pivot get_infos", "lu_unpack": "LU_data LU_pivots unpack_data unpack_pivots",
    "tril_indices": "row|rows col|columns offset", "triu_indices": "row|rows col|columns offset",
    "hsplit": "input sections|indices|indices_or_sections",
    "dsplit": "input sections|indices|indices_or_sections", "lu_solve": "input LU_data LU_pivots",
    "ormqr": "input input2|tau input3|other left transpose", "pinverse": "input rcond", "qr": "input some",
    "split_with_sizes": "input split_sizes dim", "svd": "input some compute_uv", "unsafe_split": "input split_size dim",
    "tensor_split": "input indices_or_sections|sections|indices|tensor_indices_or_sections dim", "vdot": "input other",
    "vsplit": "input sections|indices|indices_or_sections",
}  # fmt: skip
for _name, _names in _NAMED.items():
    globals()[_name] = named(_name, getattr(td, _name), *_names.split())


# -- new tensors: with out=, and what says nothing here

_MADE = ("empty", "ones", "zeros")


def _made(name: str, function):
    function = taking_out(name, function)

    def make(*args, layout=None, pin_memory=False, names=None, memory_format=None, **kwargs):
        made = function(*args, **kwargs)
        return made if memory_format is None else F.contiguous(made, memory_format)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = function.__doc__
    return make


for _name in _MADE:
    globals()[_name] = _made(_name, getattr(td, _name))


# -- operands that must be tensors

_EITHER = (
    "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "float_power", "pow", "remainder",
    "xlogy",
)  # fmt: skip
_FIRST = ("clamp_max", "clamp_min", "copysign", "eq", "fmod", "ge", "gt", "le", "lt", "ne", "rsub")
_BOTH = (
    "atan2", "fmax", "fmin", "gcd", "heaviside", "hypot", "igamma", "igammac", "lcm", "ldexp", "logaddexp",
    "logical_and", "logical_or", "logical_xor", "maximum", "minimum", "nextafter", "logaddexp2", "polar",
)  # fmt: skip
for _needed, _names in enumerate((_EITHER, _FIRST, _BOTH)):
    for _name in _names:
        globals()[_name] = of_tensors(_name, getattr(td, _name), _needed)


def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Where |input - other| <= atol + rtol * |other|.

    >>> td.torch.isclose(td.tensor([1.0, 2.0]), td.tensor([1.0, 2.1]))
    tensor([ True, False])
    """
    for what, v in (("rtol", rtol), ("atol", atol)):
        if v < 0:
            raise ValueRangeError("isclose", f"{what} is {v}; it must not be negative")
    return _isclose(input, other, rtol, atol, equal_nan)


_isclose = of_tensors("isclose", td.isclose, 2)


def squeeze(input, dim=None):
    """input without axes of size 1: all of them, or those named, where they have that size.

    >>> td.torch.squeeze(td.ones(1, 2), (0, 1)).shape
    (2,)
    """
    if dim is None or isinstance(dim, int):
        return input.squeeze() if dim is None else input.squeeze(dim)
    axes = normalize_axes("squeeze", tuple(dim), input.ndim)
    return F.squeeze(input, tuple(a for a in axes if input.shape[a] == 1))


def searchsorted(
    sorted_sequence, input=None, *, out_int32=False, right=False, side=None, sorter=None, out=None, self=None
):
    """Where values would have to be put into a sorted sequence to keep it in order.

    >>> td.torch.searchsorted(td.tensor([1, 3]), td.tensor([2]), out_int32=True)
    tensor([1], dtype=int32)
    """
    if side == "left" and right:
        raise ValueRangeError("searchsorted", "side is 'left' and right is True; they contradict each other")
    values = self if input is None else input
    made = F.searchsorted(sorted_sequence, values, side=side or "left", right=right, sorter=sorter)
    return store("searchsorted", made.to(td.int32) if out_int32 else made, out)


def bucketize(input, boundaries, *, out_int32=False, right=False, out=None):
    """The number of the interval between sorted boundaries that each element falls into.

    >>> td.torch.bucketize(td.tensor([0, 5]), td.tensor([1, 3]), out_int32=True)
    tensor([0, 2], dtype=int32)
    """
    made = F.bucketize(as_tensor("bucketize", "input", input), boundaries, right=right)
    return store("bucketize", made.to(td.int32) if out_int32 else made, out)


def repeat_interleave(input, repeats=None, dim=None, *, output_size=None):
    """Every element repeated along an axis; of repeats alone, their positions so often.

    >>> td.torch.repeat_interleave(td.tensor([1, 2]), 2)
    tensor([1, 1, 2, 2])
    """
    if repeats is None:
        return F.repeat_interleave(F.arange(input.numel()), input)
    return F.repeat_interleave(input, repeats, dim)


def isin(elements, test_elements, *, assume_unique=False, invert=False, out=None):
    """Where an element is among others.

    >>> td.torch.isin(td.tensor([1, 2]), td.tensor([2]))
    tensor([False,  True])
    """
    return store("isin", F.isin(elements, test_elements, invert=invert), out)


def norm(input, p="fro", dim=None, keepdim=False, out=None, dtype=None):
    """Norm of vectors or, with "nuc" and "fro", of matrices.

    >>> td.torch.norm(td.tensor([3.0, 4.0]))
    tensor(5.)
    """
    if p == "nuc":
        axes = (-2, -1) if dim is None else dim
        made = td.linalg.matrix_norm(input, "nuc", axes, keepdim, dtype=dtype)
    else:
        made = F.norm(input, p, dim, keepdim, dtype=dtype)
    return store("norm", made, out)


__all__ = [
    *_NAMED, *_EITHER, *_FIRST, *_BOTH, *_MADE, "all", "amax", "amin", "any", "arange", "bucketize", "complex", "constant_pad_nd",
    "cumprod", "cumsum", "equal", "gradient", "is_storage", "isclose", "isin", "max", "meshgrid", "min", "nansum", "nonzero",
    "norm", "prod", "range", "repeat_interleave", "searchsorted", "sgn", "sign", "sort", "squeeze", "std", "sum", "take",
    "trace", "var",
]  # fmt: skip
