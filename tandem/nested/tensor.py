"""Nested tensors: a batch of tensors that differ in the size of one axis, without padding.

Note [Nested tensors]
The tensors of a batch lie one after the other along that axis, in one ordinary tensor `values` (total, *rest); `offsets` (B + 1)
says where each begins. As a tensor it has the shape of what padding would give, with the ragged axis at `ragged` (1 unless axes
were exchanged); its other axes are those of `values`, in order. Operators that treat rows alike work on `values`; those that bring
together elements of one tensor of the batch use `offsets`. Lengths are data: no program is made for them.
"""

from __future__ import annotations

import itertools

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import ShapeError, UnsupportedError, ValueRangeError
from tandem.ops.define import op
from tandem.ops.edges import owners
from tandem.tensors.constructors import asarray
from tandem.tensors.parts import TensorInParts, restores

Tensor = _runtime.Tensor


class NestedTensor(TensorInParts):
    """A batch of tensors of different lengths. Made by td.nested.nested_tensor.

    >>> x = td.nested.nested_tensor([td.ones(2, 3), td.zeros(4, 3)])
    >>> x.lengths().tolist(), x.values().shape, x.to_padded_tensor(0.0).shape
    ([2, 4], (6, 3), (2, 4, 3))
    """

    kind = "nested"
    is_nested = True

    @classmethod
    def dense_fix(cls) -> str:
        return "x.to_padded_tensor(0.0)"

    def values(self):
        """All rows: (total, *rest)."""
        return self._values_part

    def offsets(self):
        """Where each tensor of the batch begins: (B + 1)."""
        return self._offsets_part

    def lengths(self):
        """How long each tensor of the batch is: (B)."""
        return F.diff(self._offsets_part)

    @property
    def ragged(self) -> int:
        """The axis whose size differs."""
        return self._ragged

    def with_values(self, values, ragged: int | None = None):
        """Other rows of the same lengths."""
        return make(values, self._offsets_part, self._longest, self._ragged if ragged is None else ragged)

    def unbind(self, dim: int = 0):
        """The tensors of the batch, as views."""
        if dim != 0:
            raise UnsupportedError("unbind", f"dim is {dim}; nested tensors are unbound along axis 0")
        bounds = self._offsets_part.tolist()
        parts = (self._values_part[a:b] for a, b in itertools.pairwise(bounds))
        return tuple(F.moveaxis(p, 0, self._ragged - 1) if self._ragged > 1 else p for p in parts)

    def __iter__(self):
        return iter(self.unbind())

    def __getitem__(self, index):
        if isinstance(index, int):
            return self.unbind()[index]
        return self._no_memory("getitem")

    def tolist(self):
        return [t.tolist() for t in self.unbind()]

    def to_padded_tensor(self, padding, output_size=None):
        """The same as an ordinary tensor, with `padding` behind the end of shorter ones.

        output_size: a shape at least as large as the usual one
        """
        size = tuple(self.shape) if output_size is None else tuple(output_size)
        if len(size) != self.ndim or any(a < b for a, b in zip(size, self.shape, strict=True)):
            raise ShapeError("to_padded_tensor", f"output_size is {size}; it must be at least {tuple(self.shape)}")
        values, length = self._values_part, size[self._ragged]
        batch, rest = self.shape[0], values.shape[1:]
        owner = owners_of(self)
        place = F.arange(values.shape[0], device=values.device) - F.index_select(self._offsets_part, 0, owner)
        blank = F.full((batch * length, *rest), padding, dtype=values.dtype, device=values.device)
        made = F.reshape(F.index_copy(blank, 0, owner * length + place, values), (batch, length, *rest))
        if self._ragged > 1:
            made = F.moveaxis(made, 1, self._ragged)
        grown = [(0, a - b) for a, b in zip(size, made.shape, strict=True)]
        if any(n for _, n in grown):
            made = F.pad(made, [n for pair in reversed(grown) for n in pair], value=padding)
        return made

    def from_padded(self, padded):
        """What an ordinary tensor (B, longest, *r) has within the lengths of this one, as a nested tensor."""
        owner = owners_of(self)
        place = F.arange(owner.shape[0], device=owner.device) - F.index_select(self._offsets_part, 0, owner)
        batch, length = padded.shape[:2]
        rows = F.reshape(padded, (batch * length, *padded.shape[2:]))
        return self.with_values(F.index_select(rows, 0, owner * length + place), 1)

    def padding(self):
        """(B, longest): True behind the end of each tensor."""
        place = F.arange(self._longest, device=self._offsets_part.device)
        return F.greater_equal(F.unsqueeze(place, 0), F.unsqueeze(self.lengths(), 1))

    def to_dense(self, *args, **kwargs):
        return self.to_padded_tensor(0)

    def to(self, *args, **kwargs):
        """This tensor with another dtype or on another device."""
        values = self._values_part.to(*args, **kwargs)
        if values is self._values_part:
            return self
        return make(values, self._offsets_part.to(values.device), self._longest, self._ragged)

    def _parts(self):
        return make, (self._values_part, self._offsets_part, self._longest, self._ragged)

    def saved(self):
        return "nested", [self._values_part, self._offsets_part, self._longest, self._ragged]

    def is_contiguous(self, *args, **kwargs) -> bool:
        return self._ragged == 1

    def __repr__(self) -> str:
        inner = ",\n".join(repr(t.detach()) for t in self.unbind())
        return "nested_tensor([\n  " + inner.replace("\n", "\n  ") + "\n])"

    __str__ = __repr__
    __hash__ = Tensor.__hash__


@op(hidden=True)
def row_owners(offsets: Tensor, values: Tensor):
    """offsets: (B + 1), values: (total, ...) -> (total): the tensor of the batch that every row is in"""
    return owners(offsets, values.shape[0])


def owners_of(x: NestedTensor):
    """The tensor of the batch that every row belongs to: (total)."""
    return row_owners(x._offsets_part, x._values_part)


def make(values, offsets, longest: int, ragged: int = 1) -> NestedTensor:
    """Of parts that fit."""
    rest = list(values.shape[1:])
    rest.insert(ragged - 1, longest)
    made = NestedTensor.make(values.dtype, (offsets.shape[0] - 1, *rest), _runtime.device_index(values))
    made._values_part, made._offsets_part, made._longest, made._ragged = values, offsets, longest, ragged
    return made


def nested_tensor(
    tensors, *, dtype=None, layout=None, device=None, requires_grad: bool = False, pin_memory: bool = False
):
    """A batch of tensors that differ in the size of their first axis, as a leaf of its own.

    tensors: list of tensors (n_i, *r), or of what td.tensor takes -> nested (B, ragged, *r)

    >>> td.nested.nested_tensor([[1.0, 2.0], [3.0]]).to_padded_tensor(0.0)
    tensor([[1., 2.],
            [3., 0.]])
    """
    made = as_nested_tensor([t.detach() if isinstance(t, Tensor) else t for t in tensors], dtype=dtype, device=device)
    return made.requires_grad_() if requires_grad else made


def as_nested_tensor(tensors, dtype=None, device=None, layout=None):
    """The same, through which gradients reach the tensors that it is made of."""
    if isinstance(tensors, NestedTensor):
        return tensors.to(dtype=dtype, device=device)
    tensors = [t if isinstance(t, Tensor) else asarray(t) for t in tensors]
    if not tensors:
        raise ValueRangeError("nested_tensor", "there are no tensors")
    first = tensors[0]
    if any(
        t.ndim != first.ndim or t.ndim < 1 or t.shape[1:] != first.shape[1:] or t.dtype is not first.dtype
        for t in tensors
    ):
        shown = ", ".join(f"{t.dtype} {tuple(t.shape)}" for t in tensors[:5])
        raise ShapeError(
            "nested_tensor", f"tensors are {shown}; they must agree in dtype and in all axes but the first",
            fix="exchange axes so that the one that differs comes first",
        )  # fmt: skip
    lengths = [t.shape[0] for t in tensors]
    values = F.concat(tensors, 0).to(dtype=dtype, device=device)
    offsets = [0]
    for n in lengths:
        offsets.append(offsets[-1] + n)
    return make(values, _runtime.from_data(offsets, dtypes.int64).to(values.device), max(lengths))


def nested_tensor_from_jagged(values, offsets=None, lengths=None, jagged_dim=None, min_seqlen=None, max_seqlen=None):
    """A nested tensor of rows that lie one after the other: offsets (B + 1) say where each tensor begins, lengths (B) its size.

    max_seqlen: the largest length, which is read if it is not given.
    """
    if (offsets is None) == (lengths is None) or jagged_dim not in (None, 1):
        raise ValueRangeError("nested_tensor_from_jagged", "give either offsets or lengths, of axis 1")
    if offsets is None:
        zero = F.full((1,), 0, dtype=dtypes.int64, device=values.device)
        offsets = F.concat([zero, F.cumsum(F.astype(lengths, dtypes.int64), 0)], 0)
    offsets = F.astype(offsets, dtypes.int64, copy=False)
    if max_seqlen is None:
        sizes = F.diff(offsets)
        max_seqlen = int(F.amax(sizes)) if sizes.shape[0] else 0
        if int(offsets[0]) != 0 or int(offsets[-1]) != values.shape[0] or bool(F.any(sizes < 0)):
            raise ValueRangeError(
                "nested_tensor_from_jagged", f"offsets must rise from 0 to the number of rows, {values.shape[0]}"
            )
    return make(values, offsets, max_seqlen)


@restores("nested")
def _restored(values, offsets, longest: int, ragged: int):
    made = nested_tensor_from_jagged(values, offsets)
    if not made._longest <= longest or not 1 <= ragged <= values.ndim:
        raise ValueRangeError("load", f"a nested tensor of lengths up to {made._longest} cannot be {longest} long")
    return make(values, made._offsets_part, longest, ragged)


def to_padded_tensor(input, padding, output_size=None):
    """input.to_padded_tensor(padding)"""
    return input.to_padded_tensor(padding, output_size)
