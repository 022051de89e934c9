"""Operators on elements, and sums over them, under their classic names."""

import tandem as _td
from tandem import dtypes as _dtypes
from tandem.v1.wrap import in_graph as _in_graph
from tandem.v1.wrap import operand as _operand

# Classic name -> ours, where they are called alike.
_NAMES = {
    "abs": "abs", "acos": "acos", "add": "add", "asin": "asin", "atan": "atan", "atan2": "atan2", "ceil": "ceil", "cos": "cos",
    "cosh": "cosh", "divide": "divide", "einsum": "einsum", "equal": "equal", "erf": "erf", "exp": "exp", "expm1": "expm1",
    "floor": "floor", "floordiv": "floor_divide", "floormod": "remainder", "greater": "greater",
    "greater_equal": "greater_equal", "is_finite": "isfinite", "is_inf": "isinf", "is_nan": "isnan", "less": "less",
    "less_equal": "less_equal", "log": "log", "log1p": "log1p", "logical_and": "logical_and", "logical_not": "logical_not",
    "logical_or": "logical_or", "logical_xor": "logical_xor", "maximum": "maximum", "minimum": "minimum", "mod": "remainder",
    "mul": "multiply", "multiply": "multiply", "neg": "negative", "negative": "negative", "not_equal": "not_equal",
    "pow": "power", "reciprocal": "reciprocal", "round": "round", "rsqrt": "rsqrt", "sigmoid": "sigmoid", "sign": "sign",
    "sin": "sin", "sinh": "sinh", "sqrt": "sqrt", "square": "square", "sub": "subtract", "subtract": "subtract", "tan": "tan",
    "tanh": "tanh", "truediv": "divide",
}  # fmt: skip
for _name, _ours in _NAMES.items():
    globals()[_name] = _in_graph(getattr(_td, _ours))

_REDUCE = {"input_tensor": "x", "reduction_indices": "axis", "keep_dims": "keepdims"}
for _name in ("max", "min", "any", "all", "logsumexp"):
    globals()[f"reduce_{_name}"] = _in_graph(getattr(_td, _name), _REDUCE)


def _same_kind(x) -> dict:
    """Sums and products of integers are of the same type here; ours have 64 bits."""
    return {"dtype": x.dtype} if x.dtype.kind in ("int", "uint") else {}


def _reduce_sum(x, axis=None, keepdims=False):
    x = _operand(x)
    return _td.sum(x, axis, keepdims, **_same_kind(x))


def _reduce_prod(x, axis=None, keepdims=False):
    x = _operand(x)
    return _td.prod(x, axis, keepdims, **_same_kind(x))


def _reduce_mean(x, axis=None, keepdims=False):
    """The mean; of integers, without its fraction."""
    x = _operand(x)
    whole = x.dtype.kind in ("int", "uint")
    return _td.mean(x.astype(_dtypes.float64), axis, keepdims).astype(x.dtype) if whole else _td.mean(x, axis, keepdims)


reduce_mean = _in_graph(_reduce_mean, _REDUCE)
reduce_sum = _in_graph(_reduce_sum, _REDUCE)
reduce_prod = _in_graph(_reduce_prod, _REDUCE)


@_in_graph
def cumsum(x, axis=0):
    """Running sum along an axis."""
    x = _operand(x)
    return _td.cumsum(x, axis, **_same_kind(x))


@_in_graph
def cumprod(x, axis=0):
    """Running product along an axis."""
    x = _operand(x)
    return _td.cumprod(x, axis, **_same_kind(x))


@_in_graph
def div(x, y):
    """Rounded down for integers, exact for floating numbers."""
    x, y = _operand(x), _operand(y)
    integers = all(type(v) is int or getattr(v, "dtype", _td.float32).kind in ("int", "uint") for v in (x, y))
    return _td.floor_divide(x, y) if integers else _td.divide(x, y)


@_in_graph
def matmul(a, b, transpose_a=False, transpose_b=False):
    """Matrix product, of the transposed matrices if asked."""
    a, b = _operand(a), _operand(b)
    return _td.matmul(a.mT if transpose_a else a, b.mT if transpose_b else b)


@_in_graph
def squared_difference(x, y):
    """(x - y) squared."""
    return _td.square(_td.subtract(x, y))


@_in_graph
def add_n(inputs):
    """The sum of several tensors."""
    total, *rest = inputs
    for x in rest:
        total = _td.add(total, x)
    return total


@_in_graph
def argmax(input, axis=0, dimension=None, output_type=_dtypes.int64):
    """Where the largest element along an axis is."""
    return _td.argmax(input, axis if dimension is None else dimension).astype(output_type)


@_in_graph
def argmin(input, axis=0, dimension=None, output_type=_dtypes.int64):
    """Where the smallest element along an axis is."""
    return _td.argmin(input, axis if dimension is None else dimension).astype(output_type)


@_in_graph
def cast(x, dtype):
    """x with elements of another type."""
    x = _operand(x)
    return x.astype(dtype) if hasattr(x, "astype") else _td.full((), x, dtype=_dtypes.as_dtype(dtype))


def to_float(x, name=None):
    return cast(x, _dtypes.float32, name=name)


def to_double(x, name=None):
    return cast(x, _dtypes.float64, name=name)


def to_int32(x, name=None):
    return cast(x, _dtypes.int32, name=name)


def to_int64(x, name=None):
    return cast(x, _dtypes.int64, name=name)


@_in_graph
def stop_gradient(input):
    """The same values, through which no gradients pass."""
    return input.detach()


__all__ = [name for name in globals() if not name.startswith("_")]
