"""What operators do with sparse tensors: those that PyTorch has for them. Every other one says so (tandem/tensors/parts.py)."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import DTypeError, ShapeError
from tandem.ops.prepare import normalize_axis
from tandem.sparse.tensor import SparseTensor, _flatten, make_coo, sparse_coo, sparse_csr
from tandem.tensors.constructors import tensor
from tandem.tensors.dtype_functions import result_type
from tandem.tensors.parts import form_table

Tensor = _runtime.Tensor
FORMS, form = form_table()


def _is_sparse(x) -> bool:
    return isinstance(x, SparseTensor)


def _is_number(x) -> bool:
    return not isinstance(x, Tensor) or (not _is_sparse(x) and x.ndim == 0)


def _same_shape(name: str, x, y):
    if tuple(x.shape) != tuple(y.shape):
        raise ShapeError(name, f"x is {tuple(x.shape)} and y is {tuple(y.shape)}; sparse tensors do not broadcast")


def _take(x: SparseTensor, made: SparseTensor) -> SparseTensor:
    """In place: x gets the parts of what was made."""
    if x.layout is not made.layout:
        made = made.to_sparse(layout=x.layout)
    if made.dtype is not x.dtype:
        raise DTypeError(None, f"the result is {made.dtype} and does not go into {x.dtype}")
    for name in ("_indices_part", "_crow", "_col", "_values_part", "_coalesced", "_structure_part"):
        if hasattr(made, name):
            setattr(x, name, getattr(made, name))
    return x


# -- sums and differences


@form("add")
def _add(x, y, alpha=None):
    if alpha is not None:
        y = F.multiply(y, alpha)
    if _is_number(x) or _is_number(y):
        return NotImplemented  # a number would fill all places
    _same_shape("add", x, y)
    if _is_sparse(x) and _is_sparse(y):
        return _joined(x, y)
    dense, entries = (y, x) if _is_sparse(x) else (x, y)
    return _onto(F.index_add, dense, entries)


def _onto(add, dense, entries: SparseTensor):
    """The entries added to a dense tensor."""
    k = entries.sparse_dim()
    values, indices = entries._values(), entries._indices()
    if values.dtype is not dense.dtype:
        dtype = result_type(values.dtype, dense.dtype)
        values, dense = F.converted(values, dtype), F.converted(dense, dtype)
    if k == 1:
        return add(dense, 0, indices[0], values)
    shape = dense.shape
    flat = F.reshape(dense, (-1, *shape[k:]))
    return F.reshape(add(flat, 0, _flatten(indices, shape[:k]), values), shape)


def _joined(x: SparseTensor, y: SparseTensor) -> SparseTensor:
    csr = x.layout is sparse_csr and y.layout is sparse_csr
    x, y = x.to_sparse_coo(), y.to_sparse_coo()
    if x.sparse_dim() != y.sparse_dim():
        raise ShapeError("add", f"x has {x.sparse_dim()} sparse axes and y has {y.sparse_dim()}; they must be equal")
    dtype = result_type(x.dtype, y.dtype)
    values = [F.converted(t._values(), dtype) for t in (x, y)]
    made = make_coo(F.concat([x._indices(), y._indices()], 1), F.concat(values, 0), x.shape, False)
    if csr:
        return made.coalesce().to_sparse_csr()
    return made.coalesce() if x.is_coalesced() and y.is_coalesced() else made


@form("subtract")
def _subtract(x, y, alpha=None):
    return _add(x, F.negative(y) if alpha is None else F.multiply(y, -alpha))


@form("add_")
def _add_in_place(x, y, alpha=None):
    if _is_sparse(x):
        made = _add(x, y, alpha)
        return made if made is NotImplemented or not _is_sparse(made) else _take(x, made)
    if alpha is not None:
        y = F.multiply(y, alpha)
    _same_shape("add_", x, y)
    if y.sparse_dim() == 1 and y.dtype is x.dtype:
        return F.index_add_(x, 0, y._indices()[0], y._values())
    return F.copy_(x, _add(x, y))


@form("subtract_")
def _subtract_in_place(x, y, alpha=None):
    return _add_in_place(x, F.negative(y) if alpha is None else F.multiply(y, -alpha))


# -- products, element by element


@form("multiply")
def _multiply(x, y):
    if _is_sparse(x) and _is_number(y):
        return x.with_values(F.multiply(x._values(), y))
    if _is_number(x):
        return y.with_values(F.multiply(x, y._values()))
    if _is_sparse(x) and _is_sparse(y):
        return _common(x, y)
    entries, dense = (x, y) if _is_sparse(x) else (y, x)
    dense = F.broadcast_to(dense, entries.shape)
    return entries.with_values(F.multiply(entries._values(), _at(dense, entries)))


def _at(dense, places: SparseTensor):
    indices = places._indices()
    return dense[tuple(indices[i] for i in range(places.sparse_dim()))]


def _common(x: SparseTensor, y: SparseTensor) -> SparseTensor:
    """The product where both have entries."""
    _same_shape("multiply", x, y)
    layout = x.layout
    x, y = x.to_sparse_coo().coalesce(), y.to_sparse_coo().coalesce()
    lead = x.shape[: x.sparse_dim()]
    here, there = _flatten(x._indices(), lead), _flatten(y._indices(), lead)
    if y._nnz() == 0:
        kept, place = F.full((0,), 0, dtype=dtypes.int64), F.full((0,), 0, dtype=dtypes.int64)
    else:
        place = F.clip(F.searchsorted(there, here), 0, y._nnz() - 1)
        kept = F.reshape(F.argwhere(F.equal(there[place], here)), (-1,))
        place = place[kept]
    values = F.multiply(x._values()[kept], y._values()[place])
    return make_coo(x._indices()[:, kept], values, x.shape, True).to_sparse(layout=layout)


@form("true_divide")
def _divide(x, y, rounding_mode=None):
    if not _is_sparse(x) or not _is_number(y):
        return NotImplemented  # division by an entry that is not there
    return x.with_values(F.true_divide(x._values(), y, rounding_mode=rounding_mode))


@form("multiply_")
def _multiply_in_place(x, y):
    made = _multiply(x, y) if _is_sparse(x) else NotImplemented
    return made if made is NotImplemented else _take(x, made)


@form("true_divide_")
def _divide_in_place(x, y, rounding_mode=None):
    made = _divide(x, y, rounding_mode) if _is_sparse(x) else NotImplemented
    return made if made is NotImplemented else _take(x, made)


# -- functions that give 0 for 0


def _of_values(function):
    def apply(x, *settings):
        x = x.coalesce()
        return x.with_values(function(x._values(), *settings))

    return apply


for _name in (
    "absolute", "asin", "asinh", "atan", "atanh", "ceil", "deg2rad", "erf", "erfinv", "expm1", "floor", "isinf", "isnan", "log1p",
    "nan_to_num", "rad2deg", "relu", "round", "sign", "signbit", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
    "abs", "conj", "real", "imag",
):  # fmt: skip
    if hasattr(F, _name):
        FORMS[getattr(F, _name).__name__] = _of_values(getattr(F, _name))


@form("negative")
def _negative(x):
    return x.with_values(F.negative(x._values()))


@form("power")
def _power(x, y):
    if not _is_sparse(x) or isinstance(y, Tensor) or not y > 0:
        return NotImplemented
    x = x.coalesce()
    return x.with_values(F.power(x._values(), y))


# -- copies and conversions


@form("clone")
def _clone(x):
    return x.with_values(F.clone(x._values()))


@form("converted")
def _converted(x, dtype):
    return x.with_values(F.converted(x._values(), dtype))


@form("astype")
def _astype(x, dtype, copy=True, device=None):
    return x.with_values(F.astype(x._values(), dtype, copy=copy))


@form("stop_gradient")
def _stop_gradient(x):
    return x.detach()


@form("zeros_like")
def _zeros_like(x, *settings):
    return make_coo(x._indices()[:, :0], F.zeros_like(x._values()[:0]), x.shape, True).to_sparse(layout=x.layout)


@form("zero_")
def _zero(x, *settings):
    return _take(x, _zeros_like(x))


@form("copy_", "copy_to_")
def _copy(x, source):
    if not _is_sparse(x):
        return F.copy_(x, source.to_dense())
    return _take(x, _clone(source)) if _is_sparse(source) else NotImplemented


# -- axes


@form("t")
def _t(x):
    return x if x.ndim < 2 else _transpose(x, 0, 1)


@form("matrix_transpose")
def _matrix_transpose(x):
    return _transpose(x, x.ndim - 2, x.ndim - 1)


@form("transpose")
def _transpose(x, axis0, axis1):
    order = list(range(x.ndim))
    a, b = normalize_axis("transpose", axis0, x.ndim), normalize_axis("transpose", axis1, x.ndim)
    order[a], order[b] = order[b], order[a]
    return _permute(x, tuple(order))


@form("permute", "permute_dims")
def _permute(x, axes):
    axes = tuple(normalize_axis("permute", a, x.ndim) for a in axes)
    k = x.sparse_dim()
    if sorted(axes[:k]) != list(range(k)):
        return NotImplemented  # sparse axes would become dense
    layout, places = x.layout, x.structure() if k == 2 and x.ndim == 2 and x._structure_part is not None else None
    coo = x.to_sparse_coo()
    values = F.permute(coo._values(), (0, *(a - k + 1 for a in axes[k:])))
    in_order = axes == tuple(range(x.ndim))
    indices = coo._indices()[_index_of(axes[:k], coo)]
    made = make_coo(indices, values, tuple(x.shape[a] for a in axes), in_order and coo._coalesced)
    if places is not None and not in_order:
        made._structure_part = places.T
    return made.to_sparse(layout=layout)


def _index_of(axes, x):
    return tensor(list(axes), device=x.device)


@form("concat", "cat", "concatenate")
def _concat(tensors, axis=0):
    if not all(map(_is_sparse, tensors)) or any(t.layout is not sparse_coo for t in tensors):
        return NotImplemented
    first = tensors[0]
    axis = normalize_axis("concat", axis, first.ndim)
    k = first.sparse_dim()
    if any(t.sparse_dim() != k or t.ndim != first.ndim for t in tensors) or axis >= k:
        return NotImplemented
    moved, offset = [], 0
    for t in tensors:
        rows = [t._indices()[i] + offset if i == axis else t._indices()[i] for i in range(k)]
        moved.append(F.stack(rows, 0))
        offset += t.shape[axis]
    shape = (*first.shape[:axis], offset, *first.shape[axis + 1 :])
    return make_coo(F.concat(moved, 1), F.concat([t._values() for t in tensors], 0), shape, False)


@form("index_select")
def _index_select(x, axis, index):
    axis = normalize_axis("index_select", axis, x.ndim)
    if _is_sparse(index):
        return NotImplemented
    if axis >= x.sparse_dim():
        x = x.to_sparse_coo()
        return make_coo(
            x._indices(), F.index_select(x._values(), axis - x.sparse_dim() + 1, index),
            (*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :]), x._coalesced,
        )  # fmt: skip
    return NotImplemented


# -- reductions


@form("sum")
def _sum(x, axis=None, *settings):
    if axis is None:
        return F.sum(x._values(), None, *_numbers(settings))
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    axes = {normalize_axis("sum", a, x.ndim) for a in axes}
    if any(settings) and settings[0] not in (None, False):
        return NotImplemented
    x = x.to_sparse_coo()
    k = x.sparse_dim()
    values = x._values()
    inner = tuple(a - k + 1 for a in sorted(axes) if a >= k)
    values = F.sum(values, inner) if inner else values
    left = [a for a in range(k) if a not in axes]
    if not left:
        return F.sum(values, 0)
    shape = tuple(n for a, n in enumerate(x.shape) if a not in axes)
    made = make_coo(x._indices()[_index_of(left, x)], values, shape, len(left) == k and x._coalesced)
    return made if len(left) == k else made.coalesce()


def _numbers(settings):
    return ()


@form("mean")
def _mean(x, axis=None, *settings):
    return F.true_divide(F.sum(x._values()), x.numel()) if axis is None else NotImplemented


@form("vector_norm", "norm")
def _norm(x, p=2, axis=None, *settings):
    if axis is not None:
        return NotImplemented
    return F.vector_norm(single_values(x), 2 if p == "fro" else p)


def single_values(x: SparseTensor):
    """Values in which every place counts once, whatever is compiled: values that were added to others are 0."""
    if x.is_coalesced():
        return x._values()
    if not _runtime.capturing():
        return x.coalesce()._values()
    _, sums = x.padded_rows()
    m = sums.shape[0]
    first = F.less(F.arange(m, device=x.device), x._count)
    return F.where(F.reshape(first, (m, *(1,) * (sums.ndim - 1))), sums, 0)


# -- products of matrices


@form("matmul", "mm", "mv")
def _matmul(x, y):
    if _is_sparse(x) and _is_sparse(y):
        return _sparse_product(x, y)
    if _is_sparse(y):  # (y^T x^T)^T
        if x.ndim not in (1, 2) or y.ndim != 2:
            return NotImplemented
        made = _matmul(_t(y), x if x.ndim == 1 else F.transpose(x, 0, 1))
        return made if x.ndim == 1 else F.transpose(made, 0, 1)
    if x.ndim != 2 or x.sparse_dim() != 2 or y.ndim not in (1, 2):
        return NotImplemented
    if x.shape[1] != y.shape[0]:
        raise ShapeError(
            "matmul",
            f"a is {tuple(x.shape)} and b is {tuple(y.shape)}; the last axis of a ({x.shape[1]}) must equal the first of b "
            f"({y.shape[0]})",
        )
    values, dense = x._values(), y if y.ndim == 2 else F.reshape(y, (-1, 1))
    dtype = result_type(values.dtype, dense.dtype)
    if dtype not in (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64):
        return F.matmul(x.to_dense(), y)
    values, dense = F.converted(values, dtype), F.converted(dense, dtype)
    made = x.structure().matmul(F.reshape(values, (-1, 1)), F.reshape(dense, (dense.shape[0], 1, -1)))
    return F.reshape(made, (x.shape[0], *y.shape[1:]))


def _sparse_product(x: SparseTensor, y: SparseTensor):
    """Every entry of x meets those of y in the row that its column names."""
    if x.ndim != 2 or y.ndim != 2 or x.sparse_dim() != 2 or y.sparse_dim() != 2 or x.shape[1] != y.shape[0]:
        raise ShapeError("matmul", f"a is {tuple(x.shape)} and b is {tuple(y.shape)}, both sparse")
    layout = x.layout
    x, y = x.to_sparse_coo(), y.to_sparse_csr()
    row, column = x._indices()[0], x._indices()[1]
    counts = F.diff(y._crow)[column]
    entry = F.repeat_interleave(F.arange(x._nnz(), device=x.device), counts)
    before = F.cumsum(counts, 0) - counts
    other = F.arange(entry.shape[0], device=x.device) - before[entry] + y._crow[column[entry]]
    indices = F.stack([row[entry], y._col[other]], 0)
    values = F.multiply(x._values()[entry], y._values()[other])
    return make_coo(indices, values, (x.shape[0], y.shape[1]), False).coalesce().to_sparse(layout=layout)


@form("addmm")
def _addmm(input, mat1, mat2, beta=1, alpha=1):
    return F.add(F.multiply(input, beta), F.multiply(_matmul(mat1, mat2), alpha))


SparseTensor.forms = FORMS
