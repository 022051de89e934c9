"""Products and powers of matrices."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Type, Value
from tandem.ops.define import op, register
from tandem.ops.linalg.prepare import MatrixOp, adjoint, identity, mm, spelled, square
from tandem.ops.linalg.solve import Inverse
from tandem.ops.precision import in_float32
from tandem.ops.prepare import broadcast_shapes, cast, full_expand, normalize_axis, promote, show, show_shape
from tandem.ops.reduce import sum_dtype


@register
class MatrixExp(MatrixOp):
    name = "matrix_exp"
    routine = "matrix_exp"
    takes = "M[*b,n,n]"

    def infer(self, a: Type) -> Type:
        return a

    def grad(self, g, a):
        # The derivative of exp at a^H in the direction g is the upper right block of exp([[a^H, g], [0, a^H]]).
        n = a.shape[-1]
        back = adjoint(a)
        above, below = F.concat([back, g], -1), F.concat([F.zeros_like(back), back], -1)
        whole = MatrixExp()(F.concat([above, below], -2))
        return F.slice_axis(F.slice_axis(whole, -2, 0, n), -1, n, n)


@spelled("matrix_exp")
@op(hidden=True)
@in_float32
def matrix_exp(x: Tensor):
    """Exponentials of square matrices: 1 + x + x @ x / 2 + ...

    x: (*b, n, n) -> (*b, n, n)

    >>> td.linalg.matrix_exp(td.tensor([[0.0, 1.0], [0.0, 0.0]]))
    tensor([[1., 1.],
            [0., 1.]])
    """
    return MatrixExp()(square("matrix_exp", x))


@spelled("matrix_power")
@op(hidden=True)
def matrix_power(x: Tensor, n):
    """The n-th power of square matrices; negative powers are those of the inverse.

    x: (*b, m, m) -> (*b, m, m)

    >>> td.linalg.matrix_power(td.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
    tensor([[1., 3.],
            [0., 1.]])
    """
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError("matrix_power", f"x is {show_shape(x.shape)}; its matrices must be square")
    n = int(n)
    if n == 0:
        return identity(x.shape[-1], x.dtype, x.shape[:-2])
    if n < 0:
        x, n = Inverse(True)(square("matrix_power", x))[0], -n
    result = None
    while n:
        if n % 2:
            result = x if result is None else mm(result, x)
        n //= 2
        x = mm(x, x) if n else x
    return F.Copy()(result) if result is x and result.node.op.is_input else result


@op(name="multi_dot", hidden=True)
def _multi_dot(tensors: Tensors, first_is_vector, last_is_vector):
    values = list(promote(*tensors))
    if first_is_vector:
        values[0] = F.Reshape((1, values[0].shape[0]))(values[0])
    if last_is_vector:
        values[-1] = F.Reshape((values[-1].shape[0], 1))(values[-1])
    for i, v in enumerate(values):
        if v.ndim != 2:
            raise ShapeError("multi_dot", f"tensor {i} is {show_shape(tensors[i].shape)}; it must be a matrix")
        if i and values[i - 1].shape[1] != v.shape[0]:
            raise ShapeError(
                "multi_dot",
                f"tensor {i - 1} has {show(values[i - 1].shape[1])} columns and tensor {i} has {show(v.shape[0])} rows",
            )
    # The order does not change the result, so that the sizes of this call may choose it for all that the plan serves.
    sizes = [show(values[0].shape[0]), *(show(v.shape[1]) for v in values)]
    out = _in_order(values, _best_order(sizes), 0, len(values) - 1)
    shape = (() if first_is_vector else (out.shape[0],)) + (() if last_is_vector else (out.shape[1],))
    return F.Reshape(shape)(out) if first_is_vector or last_is_vector else out


def _best_order(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to split each product of matrices i to j, whose sizes are sizes[i] to sizes[j + 1]."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    split = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i, j], split[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )
    return split


def _in_order(values, split, i: int, j: int) -> Value:
    if i == j:
        return values[i]
    k = split[i, j]
    return F.matmul(_in_order(values, split, i, k), _in_order(values, split, k + 1, j))


def multi_dot(tensors):
    """The product of two or more matrices, in the order that takes the fewest multiplications; the first and the last may be
    vectors.

    >>> td.linalg.multi_dot([td.ones(2, 3), td.ones(3, 4), td.ones(4)])
    tensor([12., 12.])
    """
    tensors = list(tensors)
    if len(tensors) < 2:
        raise ValueRangeError("multi_dot", f"{len(tensors)} tensors; at least 2 are needed")
    return _multi_dot(tensors, tensors[0].ndim == 1, tensors[-1].ndim == 1)


@op(hidden=True)
def cross(x: Tensor, y: Tensor, *, axis=-1):
    """Cross products of vectors of 3 elements along an axis; the other axes broadcast.

    x, y: (*s, 3) -> (*s, 3)

    >>> td.linalg.cross(td.tensor([1, 0, 0]), td.tensor([0, 1, 0]))
    tensor([0, 0, 1])
    """
    return _cross("cross", x, y, axis)


def _cross(name: str, x: Value, y: Value, axis: int) -> Value:
    x, y = promote(x, y)
    if x.dtype.kind == "bool":
        raise DTypeError(name, "x and y are bool; they must be numbers")
    if x.ndim == 0 or y.ndim == 0:
        raise ShapeError(name, f"x is {show_shape(x.shape)} and y {show_shape(y.shape)}; both need at least one axis")
    place = axis if axis < 0 else axis - max(x.ndim, y.ndim)
    shape = broadcast_shapes(name, x.shape, y.shape)
    normalize_axis(name, axis, max(x.ndim, y.ndim))
    if not -min(x.ndim, y.ndim) <= place < 0 or x.shape[place] != 3 or y.shape[place] != 3:
        raise ShapeError(
            name, f"x is {show_shape(x.shape)} and y {show_shape(y.shape)}; axis {axis} of both must have 3 elements"
        )
    x, y = full_expand(x, shape), full_expand(y, shape)
    place += len(shape)

    def part(v, i):
        return F.slice_axis(v, place, i, 1)

    def minor(i, j):
        return part(x, i) * part(y, j) - part(x, j) * part(y, i)

    return F.concat([minor(1, 2), minor(2, 0), minor(0, 1)], place)


@spelled("cross")
@op(name="cross", hidden=True)
def _torch_cross(x: Tensor, y: Tensor, axis=None):
    """Cross products of vectors of 3 elements along an axis, the last one by default.

    >>> td.cross(td.tensor([1, 0, 0]), td.tensor([0, 1, 0]))
    tensor([0, 0, 1])
    """
    return _cross("cross", x, y, -1 if axis is None else axis)


@op(hidden=True)
def diagonal(x: Tensor, *, offset: Int = 0):
    """Diagonals of matrices, or the offset-th ones above them.

    x: (*b, m, n) -> (*b, k)

    >>> td.linalg.diagonal(td.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    if x.ndim < 2:
        raise ShapeError("diagonal", f"x is {show_shape(x.shape)}; a matrix has at least 2 axes")
    return F.diagonal(x, offset, -2, -1)


@op(hidden=True)
def trace(x: Tensor, *, offset: Int = 0, dtype=None):
    """Sums of the diagonals of matrices, or of the offset-th ones above them.

    x: (*b, m, n) -> (*b)

    >>> td.linalg.trace(td.tensor([[1, 2], [3, 4]]))
    tensor(5)
    """
    if x.ndim < 2:
        raise ShapeError("trace", f"x is {show_shape(x.shape)}; a matrix has at least 2 axes")
    dtype = sum_dtype(x.dtype) if dtype is None else dtypes.as_dtype(dtype)
    return F.sum(cast(F.diagonal(x, offset, -2, -1), dtype), -1, dtype=dtype)


@op(hidden=True)
def vander(x: Tensor, N: Int | None = None):
    """Powers of the elements of x from 0 to N - 1, as rows of matrices (as many as there are elements unless N is given).

    x: (*b, n) -> (*b, n, N)

    >>> td.linalg.vander(td.tensor([1, 2, 3]))
    tensor([[1, 1, 1],
            [1, 2, 4],
            [1, 3, 9]])
    """
    if x.ndim == 0:
        x = F.Reshape((1,))(x)
    x = cast(x, dtypes.int64) if x.dtype.is_integer else x
    count = x.shape[-1] if N is None else N
    if count < 0:
        raise ValueRangeError("vander", f"N is {count}; it must not be negative")
    shape = (*x.shape, count)
    power = F.Iota(shape, len(shape) - 1, dtypes.int64)()
    return F.power(full_expand(F.Reshape((*x.shape, 1))(x), shape), cast(power, x.dtype))
