"""Sequences of different lengths in one tensor."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import NamedTuple

from tandem import _runtime, dtypes
from tandem.errors import ValueRangeError
from tandem.graph.ir import Value
from tandem.ops import argsort, concat, full, index_select, pad, stack


class PackedSequence(NamedTuple):
    """Steps of sequences that are sorted by length: all first steps, then all second ones, and so on.

    data: (sum of lengths, *); batch_sizes: how many sequences have each step; sorted_indices: where sequences were before they were
    sorted, unsorted_indices the way back.
    """

    data: object
    batch_sizes: object
    sorted_indices: object = None
    unsorted_indices: object = None

    def to(self, *args, **kwargs):
        """With the data converted, and the indices where it is; batch_sizes stay in host memory."""
        data = self.data.to(*args, **kwargs)
        order, back = (i if i is None else _beside(data, i) for i in (self.sorted_indices, self.unsorted_indices))
        return self._replace(data=data, sorted_indices=order, unsorted_indices=back)

    def cpu(self):
        return self.to("cpu")

    def cuda(self, device=None):
        return self.to("cuda" if device is None else device)

    def double(self):
        return self.to(dtypes.float64)

    def float(self):
        return self.to(dtypes.float32)

    def half(self):
        return self.to(dtypes.float16)

    def long(self):
        return self.to(dtypes.int64)

    def int(self):
        return self.to(dtypes.int32)

    def pin_memory(self):
        return self._replace(data=self.data.pin_memory())

    @property
    def is_cuda(self):
        return self.data.is_cuda

    def is_pinned(self):
        return self.data.is_pinned()


def _beside(x, index):
    """An index, from a list or a tensor, on the device of x."""
    index = _runtime.from_data(index, dtypes.int64) if isinstance(index, list) else index
    return index if isinstance(x, Value) else index.to(x.device)


def _lengths(lengths) -> list[int]:
    return [int(n) for n in (lengths.tolist() if hasattr(lengths, "tolist") else lengths)]


def _sorted(lengths: list[int], enforce_sorted: bool, x) -> tuple:
    """The lengths as they fall, where sequences were before, and the way back, both on the device of x; None for both where they
    have to fall already."""
    if enforce_sorted:
        if any(a < b for a, b in pairwise(lengths)):
            raise ValueRangeError(
                "pack_padded_sequence",
                f"lengths {lengths} rise",
                fix="pass enforce_sorted=False to have sequences sorted",
            )
        return lengths, None, None
    positions = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    back = [0] * len(positions)
    for i, position in enumerate(positions):
        back[position] = i
    return [lengths[i] for i in positions], _beside(x, positions), _beside(x, back)


def pack_padded_sequence(input, lengths, batch_first: bool = False, enforce_sorted: bool = True) -> PackedSequence:
    """Packs (L, N, *), or (N, L, *) with batch_first, leaving out what is past each length.

    enforce_sorted: lengths must fall; otherwise sequences are sorted, and what comes out of a layer is put back in order.

    >>> x = td.tensor([[1.0, 3.0], [2.0, 0.0]])
    >>> td.nn.utils.rnn.pack_padded_sequence(x, [2, 1]).data
    tensor([1., 3., 2.])
    """
    lengths = _lengths(lengths)
    x = input.transpose(0, 1) if batch_first else input
    if len(lengths) != x.shape[1]:
        raise ValueError(f"{len(lengths)} lengths were given for a batch of {x.shape[1]}")
    if not lengths or min(lengths) <= 0 or max(lengths) > x.shape[0]:
        raise ValueError(f"lengths {lengths} must lie between 1 and {x.shape[0]}")
    lengths, order, back = _sorted(lengths, enforce_sorted, x)
    if order is not None:
        x = index_select(x, 1, order)
    sizes = [sum(n > t for n in lengths) for t in range(lengths[0])]
    # One gather of rows, so that the gradient is one scatter.
    rows = _beside(x, [t * x.shape[1] + i for t, count in enumerate(sizes) for i in range(count)])
    data = index_select(x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), 0, rows)
    return PackedSequence(data, _runtime.from_data(sizes, dtypes.int64), order, back)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
):
    """The padded tensor (L, N, *), or (N, L, *) with batch_first, and the lengths: the inverse of pack_padded_sequence."""
    sizes = _lengths(sequence.batch_sizes)
    steps, batch = len(sizes), sizes[0]
    length = steps if total_length is None else total_length
    if length < steps:
        raise ValueError(f"total_length {length} is smaller than the longest sequence, {steps}")
    data = sequence.data
    rows = _beside(data, [t * batch + i for t, count in enumerate(sizes) for i in range(count)])
    flat = full((length * batch, *data.shape[1:]), padding_value, dtype=data.dtype, device=data.device)
    padded = flat.index_copy(0, rows, data).reshape(length, batch, *data.shape[1:])
    lengths = _runtime.from_data([sum(count > i for count in sizes) for i in range(batch)], dtypes.int64)
    if sequence.unsorted_indices is not None:
        padded = index_select(padded, 1, sequence.unsorted_indices)
        lengths = index_select(lengths, 0, sequence.unsorted_indices.cpu())  # where a loop over them wants them
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pad_sequence(sequences, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"):
    """Tensors (L_i, *) as one of (max L, N, *), or (N, max L, *) with batch_first.

    >>> td.nn.utils.rnn.pad_sequence([td.tensor([1, 2, 3]), td.tensor([4])], batch_first=True)
    tensor([[1, 2, 3],
            [4, 0, 0]])
    """
    sequences = list(sequences)
    longest = max(s.shape[0] for s in sequences)
    padded = []
    for s in sequences:
        missing = longest - s.shape[0]
        ends = (0, missing) if padding_side == "right" else (missing, 0)
        padded.append(pad(s, (0, 0) * (s.ndim - 1) + ends, value=padding_value) if missing else s)
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences, lengths, batch_first: bool = False) -> list:
    """The tensors that pad_sequence was given."""
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [x[i, :n] for i, n in enumerate(_lengths(lengths))]


def pack_sequence(sequences, enforce_sorted: bool = True) -> PackedSequence:
    """Packs tensors (L_i, *)."""
    sequences = list(sequences)
    given = [s.shape[0] for s in sequences]
    if not given or min(given) <= 0:
        raise ValueError(f"lengths {given} must be at least 1")
    starts = [0, *accumulate(given)]
    first = starts[:-1] if enforce_sorted else [starts[i] for i in sorted(range(len(given)), key=lambda i: -given[i])]
    together = concat(sequences, 0)
    lengths, order, back = _sorted(given, enforce_sorted, together)
    sizes = [sum(n > t for n in lengths) for t in range(lengths[0])]
    # One gather of rows, which are data: nothing here depends on how long which sequence is.
    data = index_select(together, 0, _beside(together, [first[i] + t for t, n in enumerate(sizes) for i in range(n)]))
    return PackedSequence(data, _runtime.from_data(sizes, dtypes.int64), order, back)


def unpack_sequence(packed_sequences: PackedSequence) -> list:
    """The tensors that pack_sequence was given."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def invert_permutation(permutation):
    """The permutation that undoes another.

    >>> td.nn.utils.rnn.invert_permutation(td.tensor([2, 0, 1]))
    tensor([1, 2, 0])
    """
    return None if permutation is None else argsort(permutation)
