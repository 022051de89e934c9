"""Operators that make, move and pick elements, under their classic names."""

import builtins as _builtins

import tandem as _td
from tandem import dtypes as _dtypes
from tandem.errors import ShapeError as _ShapeError
from tandem.errors import UnsupportedError as _UnsupportedError
from tandem.errors import ValueRangeError as _ValueRangeError
from tandem.session.build import graph_of as _graph_of
from tandem.session.graph import SymbolicTensor as _SymbolicTensor
from tandem.session.unknown import show_shape as _show_shape
from tandem.v1.shapes import ShapeTensor as _ShapeTensor
from tandem.v1.shapes import SizeTensor as _SizeTensor
from tandem.v1.shapes import sizes as _sizes
from tandem.v1.wrap import in_graph as _in_graph
from tandem.v1.wrap import operand as _operand
from tandem.v1.wrap import operands as _operands


@_in_graph
def zeros(shape, dtype=_dtypes.float32):
    return _td.zeros(*_sizes("zeros", shape), dtype=dtype)


@_in_graph
def ones(shape, dtype=_dtypes.float32):
    return _td.ones(*_sizes("ones", shape), dtype=dtype)


@_in_graph
def zeros_like(tensor, dtype=None, optimize=True):
    """Zeros in the shape of a tensor, and of its type unless one is given."""
    return _td.zeros_like(_operand(tensor), **({} if dtype is None else {"dtype": dtype}))


@_in_graph
def ones_like(tensor, dtype=None, optimize=True):
    """Ones in the shape of a tensor, and of its type unless one is given."""
    return _td.ones_like(_operand(tensor), **({} if dtype is None else {"dtype": dtype}))


@_in_graph
def fill(dims, value):
    """One value in all places. Python's integers are int32."""
    shape = _sizes("fill", dims)
    if isinstance(value, _SymbolicTensor):
        return _td.expand(value, shape)
    return _td.full(shape, value, dtype=_dtypes.int32 if type(value) is int else None)


@_in_graph
def range(start, limit=None, delta=1, dtype=None):
    """start, start + delta, ... before limit; from 0 to `start` if it is alone. Whole numbers are int32."""
    given = [_bound(v) for v in (start, limit, delta)]
    if dtype is None and not any(isinstance(v, float) for v in given):
        dtype = _dtypes.int32
    start, limit, delta = given
    return (
        _td.arange(start, limit, delta, dtype=dtype) if limit is not None else _td.arange(0, start, delta, dtype=dtype)
    )


def _bound(v):
    return _sizes("range", v)[0] if isinstance(v, _SymbolicTensor) else v


@_in_graph
def eye(num_rows, num_columns=None, dtype=_dtypes.float32):
    """Ones on the diagonal, zeros elsewhere."""
    return _td.eye(num_rows, num_rows if num_columns is None else num_columns, dtype=dtype)


@_in_graph
def linspace(start, stop, num):
    """num values from start to stop, both included."""
    return _td.linspace(start, stop, num)


lin_space = linspace


@_in_graph
def reshape(tensor, shape):
    """The same elements in another shape; -1 is whatever is left."""
    return _td.reshape(tensor, _sizes("reshape", shape))


@_in_graph
def transpose(a, perm=None):
    """Axes in another order; turned round without one."""
    a = _operand(a)
    return _td.permute(a, list(perm) if perm is not None else [*_builtins.range(a.ndim)][::-1])


@_in_graph
def expand_dims(input, axis=None, dim=None):
    """With a new axis of size 1."""
    return _td.unsqueeze(input, axis if dim is None else dim)


@_in_graph
def squeeze(input, axis=None, squeeze_dims=None):
    """Without axes of size 1: all of them, or those named."""
    axis = axis if squeeze_dims is None else squeeze_dims
    return _td.squeeze(input) if axis is None else _td.squeeze(input, tuple(axis) if isinstance(axis, list) else axis)


@_in_graph
def tile(input, multiples):
    """Laid out multiples[i] times along axis i."""
    return _td.tile(input, _sizes("tile", multiples))


@_in_graph
def stack(values, axis=0):
    """Tensors joined along a new axis. Sizes are stacked to a shape."""
    values = list(values)
    found = [v for v in values if isinstance(v, _SizeTensor)]
    if found and all(isinstance(v, (int, _SizeTensor)) for v in values):
        return _ShapeTensor.of(_graph_of(), tuple(_sizes("stack", values)), found[0].dtype)
    return _td.stack(_operands(values), axis)


pack = stack


@_in_graph
def unstack(value, num=None, axis=0):
    """A list of the slices along an axis, without it."""
    value = _operand(value)
    size = value.get_shape()[axis].value
    if size is None or (num is not None and num != size):
        shape = _show_shape(value.type.shape)
        raise _ShapeError(
            "unstack",
            f"the value is {shape}, and axis {axis} is unstacked{'' if num is None else f' into {num}'}; its size must be known, "
            "and that number",
            fix="give the placeholder a known size there" if size is None else "leave num out",
        )
    return list(_td.unbind(value, axis))


unpack = unstack


@_in_graph
def split(value, num_or_size_splits, axis=0, num=None):
    """A list of pieces along an axis: so many equal ones, or of these sizes."""
    value = _operand(value)
    if not isinstance(num_or_size_splits, int):
        return list(_td.split(value, _sizes("split", num_or_size_splits), axis))
    size = value.get_shape()[axis].value
    if size is None or size % num_or_size_splits:
        raise _ShapeError(
            "split",
            f"the value is {_show_shape(value.type.shape)}, and axis {axis} is split into {num_or_size_splits} equal pieces; "
            "its size must be known, and divisible by that",
            fix="give the placeholder a known size there" if size is None else "give the sizes of the pieces as a list",
        )
    return list(_td.split(value, size // num_or_size_splits, axis)) if size else [value] * num_or_size_splits


@_in_graph
def concat(values, axis=0):
    """Joined along an axis; the oldest programs give the axis first."""
    if isinstance(values, int):
        values, axis = axis, values
    return _td.concat(_operands(values), axis)


@_in_graph
def slice(input_, begin, size):
    """size[i] elements along axis i from begin[i] on; all that are left if it is -1."""
    input_ = _operand(input_)
    begin, size = _sizes("slice", begin), _sizes("slice", size)
    if len(begin) != input_.ndim or len(size) != input_.ndim:
        raise _ShapeError(
            "slice",
            f"the input is {_show_shape(input_.type.shape)}, begin has {len(begin)} items and size {len(size)}; there must be "
            "one for each axis",
            fix="begin 0 and size -1 take all of an axis",
        )
    for axis, (b, n, d) in enumerate(zip(begin, size, input_.get_shape().as_list(), strict=True)):
        if isinstance(b, int) and isinstance(n, int) and d is not None and not (0 <= b <= d and -1 <= n <= d - b):
            raise _ValueRangeError("slice", f"{n} elements from {b} on are not within axis {axis}, of size {d}")
    taken = [
        _builtins.slice(b, None if isinstance(n, int) and n == -1 else b + n) for b, n in zip(begin, size, strict=True)
    ]
    return input_[_builtins.tuple(taken)] if taken else input_


@_in_graph
def pad(tensor, paddings, mode="CONSTANT", constant_values=0):
    """With elements added: paddings[i] is (before, after) for axis i."""
    tensor, around = _operand(tensor), [_sizes("pad", pair) for pair in _pairs(paddings)]
    if mode.upper() not in ("CONSTANT", "REFLECT", "SYMMETRIC"):
        raise _ValueRangeError("pad", f"mode is {mode!r}; it must be 'CONSTANT', 'REFLECT' or 'SYMMETRIC'")
    fill_value = {"value": constant_values} if mode.upper() == "CONSTANT" else {}
    return _td.pad(tensor, tuple(map(_builtins.tuple, around)), mode.lower(), **fill_value)


def _pairs(paddings) -> list:
    if not isinstance(paddings, _SymbolicTensor):
        return [list(pair) for pair in paddings]
    tensor = getattr(paddings.node.op, "tensor", None)
    if tensor is None:
        raise _UnsupportedError(
            "pad", f"{paddings!r} has no value until a run", fix="give paddings as lists of numbers"
        )
    return tensor.tolist()


@_in_graph
def gather(params, indices, axis=0):
    """Slices of params at these indices, along an axis."""
    return _operand(params)[(_builtins.slice(None),) * axis + (_operand(indices),)]


@_in_graph
def dynamic_partition(data, partitions, num_partitions):
    """The slices of data that go to each of num_partitions parts, in order."""
    return _td.dynamic_partition(_operand(data), _operand(partitions), num_partitions)


@_in_graph
def dynamic_stitch(indices, data):
    """Slices put together: row indices[k][i] is data[k][i]; of several for one row the last counts."""
    return _td.dynamic_stitch(_operands(indices), _operands(data))


@_in_graph
def where(condition, x=None, y=None):
    """x where the condition holds, y elsewhere."""
    if x is None or y is None:
        raise _UnsupportedError(
            "where", "without x and y the size of the result depends on values, which a graph cannot have",
            fix="use where(condition, x, y), or py_func",
        )  # fmt: skip
    return _td.where(condition, x, y)


@_in_graph
def one_hot(indices, depth, on_value=None, off_value=None, axis=-1, dtype=None):
    """on_value (1) where the index is, off_value (0) elsewhere, along a new axis: the last, unless another is named."""
    indices = _operand(indices)
    indices = _td.full((), indices) if isinstance(indices, int) else indices
    axis = -1 if axis is None else axis
    axis = axis + indices.ndim + 1 if axis < 0 else axis
    places = [depth if k == axis else 1 for k in _builtins.range(indices.ndim + 1)]
    here = _td.equal(_td.unsqueeze(indices, axis), _td.arange(depth).reshape(places))
    if on_value is None and off_value is None:
        return here.astype(dtype or _dtypes.float32)
    on, off = (1 if on_value is None else on_value), (0 if off_value is None else off_value)
    given = [v for v in (on_value, off_value) if v is not None]
    if dtype is None:
        whole = all(type(v) is int for v in given)
        dtype = next((v.dtype for v in given if hasattr(v, "dtype")), _dtypes.int32 if whole else _dtypes.float32)
    return _td.where(here, on, off).astype(dtype)


__all__ = [name for name in globals() if not name.startswith("_")]
