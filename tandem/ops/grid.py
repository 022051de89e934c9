"""Matrices and grids of positions: identity, triangles, diagonals, meshgrid."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.devices import DEVICES, code_of
from tandem.errors import ShapeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.graph.symbolic import Sym, is_general, maximum, minimum
from tandem.ops.create import arange, finish, on_device
from tandem.ops.define import as_tensor, inplace, op, public
from tandem.ops.movement import take_slice
from tandem.ops.prepare import cast, constant, normalize_axis


@op(name="eye", hidden=True)
def _eye(rows: Int, columns: Int, k: Int, dtype):
    if rows < 0 or columns < 0:
        raise ShapeError("eye", f"sizes {rows} and {columns} must not be negative")
    shape = (rows, columns)
    row, column = (F.Iota(shape, a, dtypes.int64)() for a in (0, 1))
    return cast(F.equal(F.add(row, constant(k, dtypes.int64)), column), dtype)


@public
def eye(n_rows, n_cols=None, *, k=0, dtype=None, device=None, requires_grad: bool = False):
    """Ones on the diagonal (the k-th above it), zeros elsewhere.

    >>> td.eye(2)
    tensor([[1., 0.],
            [0., 1.]])
    """
    n_cols = n_rows if n_cols is None else n_cols
    if isinstance(k, int) and isinstance(n_rows, int) and isinstance(n_cols, int):
        k = max(-n_rows, min(k, n_cols))  # diagonals outside the matrix are alike, however far
    made = _eye(n_rows, n_cols, k, dtypes.as_dtype(dtype or dtypes.default_float()))
    return finish(made, device, requires_grad)


def _triangle(name: str, x: Value, k, lower: bool) -> Value:
    if x.ndim < 2:
        raise ShapeError(name, f"x has {x.ndim} axes; at least 2 are needed")
    row, column = (F.Iota(x.shape, a, dtypes.int64)() for a in (x.ndim - 2, x.ndim - 1))
    # not row + k, which may overflow
    place, edge = F.subtract(column, row), constant(k, dtypes.int64)
    keep = F.LessEqual()(place, edge) if lower else F.LessEqual()(edge, place)
    return F.Where()(keep, x, constant(0, x.dtype))


@op
def tril(x: Tensor, k: Int = 0):
    """The lower triangle of matrices: zeros above the k-th diagonal.

    >>> td.tril(td.ones(2, 2))
    tensor([[1., 0.],
            [1., 1.]])
    """
    return _triangle("tril", x, k, True)


@op
def triu(x: Tensor, k: Int = 0):
    """The upper triangle of matrices: zeros below the k-th diagonal.

    >>> td.triu(td.ones(2, 2))
    tensor([[1., 1.],
            [0., 1.]])
    """
    return _triangle("triu", x, k, False)


inplace(tril)
inplace(triu)


@op
def diagonal(x: Tensor, offset: Int = 0, axis1=0, axis2=1):
    """The diagonal (or the offset-th above it) of the planes that two axes span, as the last axis. A view.

    >>> td.diagonal(td.arange(4).reshape(2, 2))
    tensor([0, 3])
    """
    if x.ndim < 2:
        raise ShapeError("diagonal", f"x has {x.ndim} axes; at least 2 are needed")
    a, b = normalize_axis("diagonal", axis1, x.ndim), normalize_axis("diagonal", axis2, x.ndim)
    if a == b:
        raise ValueRangeError("diagonal", f"axis1 and axis2 are both {a}")
    rest = tuple(i for i in range(x.ndim) if i not in (a, b))
    moved = F.Permute((*rest, a, b))(x)
    rows, columns = moved.shape[-2:]
    if is_general(offset, rows, columns):
        down, right = minimum(maximum(-offset, 0), rows), minimum(maximum(offset, 0), columns)
    else:
        down, right = (0, offset) if offset >= 0 else (-offset, 0)
    size = minimum(rows - down, columns - right)
    if not is_general(offset, rows, columns) and size <= 0:
        down, right, size = 0, 0, 0
    square = take_slice(moved, {x.ndim - 2: (down, 1, size), x.ndim - 1: (right, 1, size)})
    return F.Diagonal()(square)


@op
def diag_embed(x: Tensor, offset: Int = 0, dim1=-2, dim2=-1):
    """Matrices with the last axis of x on their diagonal (or the offset-th above it): dim1 counts rows, dim2 columns.

    x: (*b, n) -> (*b, n, n)

    >>> td.diag_embed(td.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    if x.ndim == 0:
        raise ShapeError("diag_embed", "x has no axes; at least 1 is needed")
    rows, columns = (normalize_axis("diag_embed", a, x.ndim + 1) for a in (dim1, dim2))
    if rows == columns:
        raise ValueRangeError("diag_embed", f"dim1 and dim2 are both {rows}; they must differ")
    if (rows, columns) != (x.ndim - 1, x.ndim):
        return F.Copy()(F.moveaxis(F.diag_embed(x, offset), (-2, -1), (rows, columns)))
    above, below = maximum(offset, 0), maximum(-offset, 0)
    n = x.shape[-1] + (above + below if is_general(offset) else abs(offset))
    if x.shape[-1] == 0:
        return F.full((*x.shape[:-1], n, n), 0, dtype=x.dtype)
    start = above + below * n if is_general(offset) else offset if offset >= 0 else -offset * n
    flat = F.Embed((0,) * (x.ndim - 1) + (start,), (1,) * (x.ndim - 1) + (n + 1,), (*x.shape[:-1], n * n))(x)
    return F.Copy()(F.Reshape((*x.shape[:-1], n, n))(flat))


@op
def diag(x: Tensor, k: Int = 0):
    """The diagonal of a matrix, or a matrix with a vector on its diagonal; the k-th above it.

    >>> td.diag(td.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    if x.ndim not in (1, 2):
        raise ShapeError("diag", f"x has {x.ndim} axes; 1 or 2 are needed", fix="use diagonal or diag_embed")
    return F.diag_embed(x, k) if x.ndim == 1 else F.Copy()(F.diagonal(x, k))


@op
def trace(x: Tensor):
    """Sum of the diagonal of a matrix.

    x: (m, n) -> ()

    >>> td.trace(td.tensor([[1, 2], [3, 4]]))
    tensor(5)
    """
    if x.ndim != 2:
        raise ShapeError("trace", f"x has {x.ndim} axes; 2 are needed")
    diagonal = F.diagonal(x)
    if x.dtype is dtypes.float32:  # few terms, far apart: float64 costs nothing here
        return cast(F.sum(cast(diagonal, dtypes.float64)), dtypes.float32)
    return F.sum(diagonal)


@public
def meshgrid(*tensors, indexing: str = "xy"):
    """Tensors of coordinates on a grid, one per axis: "xy" (as NumPy and the Array API: the first two axes swapped) or "ij".

    >>> [t.shape for t in td.meshgrid(td.arange(2), td.arange(3), indexing="ij")]
    [(2, 3), (2, 3)]
    """
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    tensors = tuple(as_tensor("meshgrid", "a tensor", t) for t in tensors)
    if indexing not in ("xy", "ij"):
        raise ValueRangeError("meshgrid", f"indexing is {indexing!r}; it must be 'xy' or 'ij'")
    count = len(tensors)
    order = list(range(count))
    if indexing == "xy" and count > 1:
        order[:2] = [1, 0]
    sizes = [t.shape[0] if t.ndim else 1 for t in tensors]
    shape = tuple(sizes[i] for i in order)
    results = []
    for i, t in enumerate(tensors):
        if t.ndim > 1:
            raise ShapeError("meshgrid", f"tensor {i} has {t.ndim} axes; 0 or 1 are needed")
        place = [1] * count
        place[order.index(i)] = sizes[i]
        results.append(F.clone(F.expand(F.reshape(t, tuple(place)), shape)))
    return tuple(results)


def _triangle_indices(rows, columns, offset, lower: bool):
    if not any(isinstance(n, Sym) for n in (rows, columns, offset)):
        return _runtime.triangle_indices(rows, columns, offset, lower)
    rows_of, columns_of = F.meshgrid(arange(rows), arange(columns), indexing="ij")
    keep = F.less_equal(columns_of - rows_of, offset) if lower else F.greater_equal(columns_of - rows_of, offset)
    return F.stack([F.masked_select(rows_of, keep), F.masked_select(columns_of, keep)])


def _placed(positions, dtype, device):
    positions = positions if dtype is None else F.converted(positions, dtypes.as_dtype(dtype))
    return on_device(positions, DEVICES[code_of(device)])


@public
def tril_indices(rows, columns=None, offset=0, *, dtype=None, device=None):
    """Positions of the lower triangle of a matrix: (2, count).

    >>> td.tril_indices(2)
    tensor([[0, 1, 1],
            [0, 0, 1]])
    """
    return _placed(_triangle_indices(rows, rows if columns is None else columns, offset, True), dtype, device)


@public
def triu_indices(rows, columns=None, offset=0, *, dtype=None, device=None):
    """Positions of the upper triangle of a matrix: (2, count).

    >>> td.triu_indices(2)
    tensor([[0, 0, 1],
            [0, 1, 1]])
    """
    return _placed(_triangle_indices(rows, rows if columns is None else columns, offset, False), dtype, device)
