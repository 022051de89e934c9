"""What functions of linear algebra do to their arguments first, and the shorthands their formulas are written in."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError, ShapeError
from tandem.graph.ir import Value
from tandem.ops.define import FUNCTIONS, METHODS, LibraryOp
from tandem.ops.movement import Permute
from tandem.ops.prepare import broadcast_shapes, cast, constant, full_expand, promote, show_shape, to_float


class MatrixOp(LibraryOp):
    """A routine of src/library/linalg. Its gradient is written with adjoints where complex numbers have them."""

    takes_complex = True
    holomorphic = False
    batching = "leading"


def matrices(name: str, x: Value, argument: str = "x") -> Value:
    """x as matrices of a type that LAPACK has; integers become the default float."""
    x = to_float(x)
    if x.dtype in (dtypes.float16, dtypes.bfloat16):
        raise DTypeError(
            name,
            f"{argument} is {x.dtype}; there are factorisations of float32, float64, complex64 and complex128 only",
            fix=f"convert it: {argument}.to(td.float32)",
        )
    if x.ndim < 2:
        raise ShapeError(
            name, f"{argument} is {show_shape(x.shape)}; a matrix, or a batch of them, has at least 2 axes"
        )
    return x


def square(name: str, x: Value, argument: str = "x") -> Value:
    x = matrices(name, x, argument)
    if x.shape[-2] != x.shape[-1]:
        raise ShapeError(name, f"{argument} is {show_shape(x.shape)}; its matrices must be square")
    return x


def same_batch(name: str, *values: Value) -> tuple[Value, ...]:
    """Matrices of one type, their batch axes broadcast."""
    values = promote(*values)
    batch = broadcast_shapes(name, *(v.shape[:-2] for v in values))
    return tuple(full_expand(v, batch + v.shape[-2:]) for v in values)


def conj(x: Value) -> Value:
    return F.conj(x) if x.dtype.is_complex else x


def swap(x: Value) -> Value:
    """Transposed matrices."""
    return Permute((*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))(x)


def adjoint(x: Value) -> Value:
    """Conjugate transposed matrices."""
    return conj(swap(x))


def mm(*factors: Value) -> Value:
    result = factors[0]
    for factor in factors[1:]:
        result = F.matmul(result, factor)
    return result


def column(x: Value) -> Value:
    return F.Reshape((*x.shape, 1))(x)


def row(x: Value) -> Value:
    return F.Reshape((*x.shape[:-1], 1, x.shape[-1]))(x)


def scaled_columns(x: Value, by: Value) -> Value:
    return x * cast(row(by), x.dtype)


def scaled_rows(x: Value, by: Value) -> Value:
    return x * cast(column(by), x.dtype)


def identity(n, dtype, batch=()) -> Value:
    shape = (*batch, n, n)
    return cast(on_diagonal(shape), dtype)


def on_diagonal(shape) -> Value:
    """Where row and column are the same, as booleans."""
    ndim = len(shape)
    return F.Equal()(*(F.Iota(tuple(shape), a, dtypes.int64)() for a in (ndim - 2, ndim - 1)))


def with_diagonal(x: Value, diagonal: Value | float) -> Value:
    """x with another diagonal: numbers (*b, n), or one number."""
    if not isinstance(diagonal, Value):
        value = constant(diagonal, x.dtype)
    else:
        value = full_expand(cast(row(diagonal), x.dtype), x.shape)
    return F.Where()(on_diagonal(x.shape), value, x)


def diagonal_of(x: Value) -> Value:
    return F.diagonal(x, 0, -2, -1)


def reciprocal_or_zero(x: Value) -> Value:
    """1 / x, and 0 where x is 0."""
    zero = F.equal(x, 0)
    return F.where(zero, constant(0, x.dtype), 1 / F.where(zero, constant(1, x.dtype), x))


def nan_unless_zero(result: Value, *extra: Value) -> Value:
    """result, or NaN for matrices where a gradient arrived for what the operand does not determine: loud rather than wrong."""
    for g in extra:
        arrived = F.any(F.not_equal(g, 0), (-2, -1), keepdims=True)
        result = F.where(arrived, float("nan"), result)
    return result


def spelled(*names: str, method: bool = True):
    """Makes a function of td.linalg one of td too, under these names."""

    def add(function):
        for name in names:
            FUNCTIONS[name] = function
            if method:
                METHODS.add(name)
        return function

    return add
