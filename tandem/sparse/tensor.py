"""Sparse tensors: coordinates (COO) and compressed rows (CSR)."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import ShapeError, UnsupportedError, ValueRangeError
from tandem.layouts import Layout, _layout, sparse_coo, sparse_csr, strided  # noqa: F401
from tandem.ops.edges import check_coo, check_csr, coalesce_rows
from tandem.sparse.structure import Structure, at_once, structure
from tandem.tensors.constructors import asarray
from tandem.tensors.parts import TensorInParts, restores

Tensor = _runtime.Tensor


class SparseTensor(TensorInParts):
    """A tensor that holds only some of its elements; all others are zero. Made by td.sparse_coo_tensor, td.sparse_csr_tensor,
    x.to_sparse(), and by backward of embeddings with sparse=True.

    Its values are an ordinary tensor, through which gradients go.

    >>> x = td.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    >>> x.values()
    tensor([2., 3.])
    >>> (x @ td.ones(2, 1)).shape
    (2, 1)
    """

    layout: Layout = None

    # -- what it is

    @property
    def kind(self) -> str:
        return "sparse COO" if self.layout is sparse_coo else "sparse CSR"

    @property
    def is_sparse(self) -> bool:
        return self.layout is sparse_coo

    @property
    def is_sparse_csr(self) -> bool:
        return self.layout is sparse_csr

    def sparse_dim(self) -> int:
        """How many leading axes are sparse."""
        return 2 if self.layout is sparse_csr else self._indices_part.shape[0]

    def dense_dim(self) -> int:
        """How many axes the values have besides their own."""
        return self.ndim - self.sparse_dim()

    def _nnz(self) -> int:
        return self._values_part.shape[0]

    # -- parts

    def new(self, *args, device=None):
        """A sparse tensor of this one's dtype: of indices, values and a shape, or of a shape alone, without entries."""
        if args and isinstance(args[0], Tensor):
            indices, values, *shape = args
            shape = shape[0] if shape else [int(n) + 1 for n in F.amax(indices, 1).tolist()] + list(values.shape[1:])
        else:
            shape = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args or (0,)
            indices, values = F.full((len(shape), 0), 0, dtype=dtypes.int64), F.full((0,), 0, dtype=self.dtype)
        return make_coo(indices, F.converted(values.detach(), self.dtype), tuple(shape), False)

    def is_coalesced(self) -> bool:
        """Whether every place is named once, in order."""
        return self._coalesced

    def _indices(self):
        return self._indices_part if self.layout is sparse_coo else self.to_sparse_coo()._indices_part

    def _values(self):
        return self._values_part

    def indices(self):
        """Where the values are: (sparse_dim, nnz). Of a coalesced COO tensor."""
        if self.layout is not sparse_coo:
            raise UnsupportedError("indices", "a CSR tensor has crow_indices and col_indices", fix="x.to_sparse_coo()")
        self._need_coalesced("indices")
        return self._indices_part

    def values(self):
        """What is there: (nnz, *dense)."""
        if self.layout is sparse_coo:
            self._need_coalesced("values")
        return self._values_part

    def _need_coalesced(self, name: str):
        if not self._coalesced:
            raise ValueRangeError(
                name, "the tensor may name a place more than once, as it is not coalesced", fix=f"x.coalesce().{name}()"
            )

    def crow_indices(self):
        """Where the entries of each row begin: (rows + 1)."""
        self._need_csr("crow_indices")
        return self._crow

    def col_indices(self):
        """The column of every entry: (nnz)."""
        self._need_csr("col_indices")
        return self._col

    def _need_csr(self, name: str):
        if self.layout is not sparse_csr:
            raise UnsupportedError(name, "this is a COO tensor", fix=f"x.to_sparse_csr().{name}()")

    def with_values(self, values):
        """The same places with other values."""
        if self.layout is sparse_csr:
            made = make_csr(self._crow, self._col, values, self.shape)
        else:
            made = make_coo(self._indices_part, values, self.shape, self._coalesced)
        made._structure_part = self._structure_part
        return made

    def structure(self) -> Structure:
        """The places as products want them; kept."""
        if self._structure_part is None:
            with at_once(*((self._crow, self._col) if self.layout is sparse_csr else (self._indices_part,))):
                self._structure_part = structure(*_places(self), *self.shape[:2])
        return self._structure_part

    # -- conversions

    def coalesce(self):
        """The same with every place named once, in order; values of one place are added."""
        if self._coalesced:
            return self
        indices, values = self._indices_part, self._values_part
        if indices.shape[1] == 0:
            return make_coo(indices, values, self.shape, True)
        rows, sums = self.padded_rows()
        count = int(self._count)
        rows, sums = rows[:count], sums[:count]
        return make_coo(_unflatten(rows, self.shape[: self.sparse_dim()]), sums, self.shape, True)

    def padded_rows(self):
        """Flat places and summed values, as many as there are entries: behind the last of them it is repeated.

        Its sizes do not depend on values, so it is for compiled functions and devices too.
        """
        flat = _flatten(self._indices_part, self.shape[: self.sparse_dim()])
        if self._coalesced:
            return flat, self._values_part
        rows, sums, self._count = coalesce_rows(flat, self._values_part)
        return rows, sums

    def to_dense(self, dtype=None, *, masked_grad=None):
        """The same as an ordinary tensor."""
        row = self._indices()
        lead = self.shape[: self.sparse_dim()]
        zeros = F.full((math.prod(lead), *self.shape[len(lead) :]), 0, dtype=self.dtype, device=self.device)
        made = F.reshape(F.index_add(zeros, 0, _flatten(row, lead), self._values_part), self.shape)
        return made if dtype is None else F.converted(made, dtypes.as_dtype(dtype))

    def to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
        """The same in another layout."""
        if layout is sparse_csr:
            return self.to_sparse_csr()
        if layout not in (None, sparse_coo):
            raise UnsupportedError("to_sparse", f"layout is {layout}; it may be td.sparse_coo or td.sparse_csr")
        return self.to_sparse_coo() if layout is sparse_coo or self.layout is sparse_csr else self

    def to_sparse_coo(self):
        """The same as coordinates."""
        if self.layout is sparse_coo:
            return self
        return make_coo(F.stack(list(_places(self)), 0), self._values_part, self.shape, True)

    def to_sparse_csr(self, dense_dim=None):
        """The same as compressed rows; of matrices."""
        if self.layout is sparse_csr:
            return self
        if self.sparse_dim() != 2:
            raise ShapeError(
                "to_sparse_csr", f"the tensor has {self.sparse_dim()} sparse axes; compressed rows have two"
            )
        x = self.coalesce()
        row, column = x._indices_part[0], x._indices_part[1]
        counts = F.bincount(row, minlength=self.shape[0])
        crow = F.concat([F.full((1,), 0, dtype=dtypes.int64, device=row.device), F.cumsum(counts, 0)], 0)
        return make_csr(crow, column, x._values_part, self.shape)

    def to(self, *args, **kwargs):
        """This tensor with another dtype or on another device."""
        values = self._values_part.to(*args, **kwargs)
        if values.device == self.device:
            return self if values is self._values_part else self.with_values(values)
        if self.layout is sparse_csr:
            return make_csr(self._crow.to(values.device), self._col.to(values.device), values, self.shape)
        return make_coo(self._indices_part.to(values.device), values, self.shape, self._coalesced)

    @property
    def T(self):
        return self.t()

    @property
    def mT(self):
        return self.t()

    def _parts(self):
        if self.layout is sparse_csr:
            return make_csr, (self._crow, self._col, self._values_part, tuple(self.shape))
        return make_coo, (self._indices_part, self._values_part, tuple(self.shape), self._coalesced)

    def saved(self):
        size = list(self.shape)
        if self.layout is sparse_csr:
            return "sparse_csr", [self._crow, self._col, self._values_part, size]
        return "sparse_coo", [self._indices_part, self._values_part, size, self._coalesced]

    def __repr__(self) -> str:
        if self.layout is sparse_csr:
            parts = [f"crow_indices={self._crow!r}", f"col_indices={self._col!r}"]
        else:
            parts = [f"indices={self._indices_part!r}"]
        parts.append(f"values={self._values_part.detach()!r}")
        tail = f"size={tuple(self.shape)}, nnz={self._nnz()}, layout={self.layout!r}"
        if self.requires_grad:
            tail += ", requires_grad=True"
        return "tensor(" + ",\n       ".join(p.replace("\n", "\n       ") for p in [*parts, tail]) + ")"

    __str__ = __repr__
    __hash__ = Tensor.__hash__


def _places(x: SparseTensor):
    """Row and column of every entry of a matrix."""
    if x.layout is sparse_coo:
        return x._indices_part[0], x._indices_part[1]
    counts = F.diff(x._crow)
    return F.repeat_interleave(F.arange(x.shape[0], device=counts.device), counts), x._col


def _flatten(indices, shape):
    """Row-major numbers of places (k, m) in `shape`."""
    flat = indices[0]
    for k in range(1, len(shape)):
        flat = flat * shape[k] + indices[k]
    return flat


def _unflatten(flat, shape):
    if len(shape) == 1:
        return F.unsqueeze(flat, 0)
    rows = []
    for n in reversed(shape[1:]):
        rows.insert(0, F.remainder(flat, n))
        flat = F.floor_divide(flat, n)
    return F.stack([flat, *rows], 0)


def _blank(values, shape, layout: Layout) -> SparseTensor:
    made = SparseTensor.make(values.dtype, shape, _runtime.device_index(values))
    made.layout, made._values_part, made._structure_part = layout, values, None
    return made


def make_coo(indices, values, shape, coalesced: bool) -> SparseTensor:
    """Of parts that fit."""
    made = _blank(values, shape, sparse_coo)
    made._indices_part, made._coalesced = indices, coalesced
    return made


def make_csr(crow, column, values, shape) -> SparseTensor:
    made = _blank(values, shape, sparse_csr)
    made._crow, made._col, made._coalesced = crow, column, True
    return made


# -- what users call


def _part(name: str, parameter: str, value, dtype=None, device=None):
    value = value if isinstance(value, Tensor) else _runtime.from_data(value, dtype) if dtype else _as_tensor(value)
    if dtype is not None and value.dtype is not dtype:
        if dtype is dtypes.int64 and not value.dtype.is_integer and value.numel():
            raise ValueRangeError(name, f"{parameter} are {value.dtype}; they must be integers")
        value = F.converted(value, dtype)
    return value if device is None else value.to(device)


def _as_tensor(value):
    return asarray(value)


def _prepared_values(name: str, values, dtype, device, requires_grad: bool):
    values = _part(name, "values", values)
    if dtype is not None:
        values = F.converted(values, dtypes.as_dtype(dtype))
    if device is not None:
        values = values.to(device)
    return values.detach().requires_grad_() if requires_grad else values


def sparse_coo_tensor(indices, values=None, size=None, *, dtype=None, device=None, requires_grad: bool = False,
                      pin_memory: bool = False, check_invariants: bool | None = None, is_coalesced: bool = False):  # fmt: skip
    """A tensor given by coordinates: values[i] is at indices[:, i]; values of one place add up. With a size alone: no entries.

    indices: (s, m) of integers, values: (m, *d), size: (n1..ns, *d), or as large as the indices ask for

    >>> td.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 2)).to_dense()
    tensor([[0., 2.],
            [3., 0.]])
    """
    if values is None:
        size = tuple(indices if size is None else size)
        values = F.full((0,), 0, dtype=dtypes.as_dtype(dtype) if dtype is not None else None, device=device)
        made = make_coo(F.full((len(size), 0), 0, dtype=dtypes.int64, device=device), values, size, True)
        return made.requires_grad_() if requires_grad else made
    values = _prepared_values("sparse_coo_tensor", values, dtype, device, requires_grad)
    indices = _part("sparse_coo_tensor", "indices", indices, dtypes.int64, values.device)
    if indices.ndim != 2 or values.ndim < 1 or values.shape[0] != indices.shape[1]:
        raise ShapeError(
            "sparse_coo_tensor",
            f"indices are {tuple(indices.shape)} and values {tuple(values.shape)}; they must be (s, m) and (m, ...)",
        )
    sparse_dim, dense = indices.shape[0], tuple(values.shape[1:])
    if size is None:
        if indices.shape[1] == 0 and sparse_dim:
            raise ShapeError("sparse_coo_tensor", "there are no entries to take the size from", fix="pass size=")
        size = (*(int(n) + 1 for n in F.amax(indices, 1)), *dense)
    size = tuple(size)
    if len(size) != sparse_dim + len(dense) or size[sparse_dim:] != dense:
        raise ShapeError(
            "sparse_coo_tensor",
            f"size is {size}; for indices {tuple(indices.shape)} and values {tuple(values.shape)} it must have {sparse_dim} axes "
            f"followed by {dense}",
        )
    _check_places(check_coo, indices, size)
    return make_coo(indices, values, size, bool(is_coalesced))


def _check_places(check, indices, size, axis: int = 0):
    for k in range(indices.shape[0] if indices.shape[1] else 0):
        check(indices[k].cpu(), size[k], axis + k)


def sparse_csr_tensor(crow_indices, col_indices, values, size=None, *, dtype=None, device=None, requires_grad: bool = False,
                      pin_memory: bool = False, check_invariants: bool | None = None):  # fmt: skip
    """A matrix given by compressed rows: those of row i are values[crow_indices[i]:crow_indices[i + 1]], in columns col_indices.

    crow_indices: (n + 1), col_indices: (m), values: (m)

    >>> td.sparse_csr_tensor([0, 1, 2], [1, 0], [2.0, 3.0]).to_dense()
    tensor([[0., 2.],
            [3., 0.]])
    """
    values = _prepared_values("sparse_csr_tensor", values, dtype, device, requires_grad)
    crow = _part("sparse_csr_tensor", "crow_indices", crow_indices, dtypes.int64, values.device)
    column = _part("sparse_csr_tensor", "col_indices", col_indices, dtypes.int64, values.device)
    m = values.shape[0] if values.ndim else -1
    if crow.ndim != 1 or crow.shape[0] < 1 or column.ndim != 1 or column.shape[0] != m:
        raise ShapeError(
            "sparse_csr_tensor",
            f"crow_indices are {tuple(crow.shape)}, col_indices {tuple(column.shape)} and values {tuple(values.shape)}; they must "
            "be (rows + 1), (m) and (m)",
        )
    if int(crow[0]) != 0 or int(crow[-1]) != m or bool(F.any(F.diff(crow) < 0)):
        raise ValueRangeError("sparse_csr_tensor", f"crow_indices must rise from 0 to the number of values, {m}")
    size = (crow.shape[0] - 1, int(F.amax(column)) + 1 if m else 0, *values.shape[1:]) if size is None else tuple(size)
    if len(size) != 1 + values.ndim or size[0] != crow.shape[0] - 1 or size[2:] != tuple(values.shape[1:]):
        raise ShapeError("sparse_csr_tensor", f"size is {size}; crow_indices are of {crow.shape[0] - 1} rows")
    _check_places(check_csr, F.unsqueeze(column, 0), size[1:], 1)
    return make_csr(crow, column, values, size)


@restores("sparse_coo")
def _restored_coo(indices, values, size, coalesced):
    made = sparse_coo_tensor(indices, values, size)
    flat = _flatten(indices, size[: indices.shape[0]])
    made._coalesced = bool(coalesced) and bool(F.all(F.diff(flat) > 0))
    return made


@restores("sparse_csr")
def _restored_csr(crow_indices, col_indices, values, size):
    return sparse_csr_tensor(crow_indices, col_indices, values, size)


def from_dense(x, sparse_dim, layout):
    """See to_sparse in tandem/ops/sparse_methods.py."""
    if isinstance(sparse_dim, Layout):
        sparse_dim, layout = None, sparse_dim
    if layout not in (None, sparse_coo, sparse_csr):
        raise UnsupportedError("to_sparse", f"layout is {layout}; it may be td.sparse_coo or td.sparse_csr")
    if layout is sparse_csr:
        if x.ndim != 2:
            raise ShapeError("to_sparse", f"x is {tuple(x.shape)}; compressed rows are of matrices")
        return from_dense(x, None, None).to_sparse_csr()
    k = x.ndim if sparse_dim is None else sparse_dim
    if not 0 < k <= x.ndim:
        raise ValueRangeError("to_sparse", f"sparse_dim is {k}; x is {tuple(x.shape)}")
    used = F.not_equal(x.detach(), 0)
    if k < x.ndim:
        used = F.any(used, tuple(range(k, x.ndim)))
    indices = F.transpose(F.argwhere(used), 0, 1).contiguous()
    return make_coo(indices, x[tuple(indices[i] for i in range(k))], x.shape, True)


def masked_by(x, mask: SparseTensor):
    """x at the places that a sparse tensor has."""
    mask = mask.coalesce() if mask.layout is sparse_coo else mask
    indices = mask._indices()
    return mask.with_values(x[tuple(indices[i] for i in range(mask.sparse_dim()))])
