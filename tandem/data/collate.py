"""Batches from samples."""

from __future__ import annotations

import sys
import threading

from tandem import _runtime, dtypes
from tandem.errors import DTypeError, ShapeError

Tensor = _runtime.Tensor


class _Memory(threading.local):
    allocate = None  # in worker processes: shape, dtype -> tensor on memory that the main process sees


memory = _Memory()


def empty(shape, dtype):
    """Memory for a batch, which crosses to the main process without a copy; None where ordinary memory will do."""
    return None if memory.allocate is None else memory.allocate(shape, dtype)


def default_collate(batch: list | tuple):
    """One batch from samples: tensors, arrays and numbers are stacked along a new first axis, dicts and tuples by element.

    >>> td.data.default_collate([(td.zeros(2), 1, "a"), (td.ones(2), 2, "b")])
    [tensor([[0., 0.],
            [1., 1.]]), tensor([1, 2]), ('a', 'b')]
    """
    first = batch[0]
    if isinstance(first, _Row):
        for i, other in enumerate(batch):
            if not isinstance(other, _Row):
                raise (
                    _misfit(first.rows.dtype, first.rows.shape[1:], i, other)
                    if isinstance(other, Tensor)
                    else DTypeError(
                        "collate",
                        f"sample 0 has a tensor where sample {i} has a {type(other).__name__}",
                        fix="pass a collate_fn",
                    )
                )
        return first.rows
    if isinstance(first, Tensor):
        return _stack(batch)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(first, numpy.ndarray):
        if first.dtype.kind in "OSUV":
            raise DTypeError("collate", f"NumPy arrays of {first.dtype} cannot be stacked", fix="pass a collate_fn")
        return _stack(
            [_runtime.from_numpy(a if a.flags.aligned and a.dtype.isnative else numpy.array(a)) for a in batch]
        )
    if numpy is not None and isinstance(first, numpy.generic):
        return _runtime.from_numpy(numpy.array(batch))
    if isinstance(first, float):
        return _runtime.from_data(list(batch), dtypes.float64)  # what a Python float holds, as PyTorch has it
    if isinstance(first, (bool, int)):
        return _runtime.from_data(list(batch), None)
    if first is None:
        return None
    if isinstance(first, (str, bytes)):
        return batch  # a tuple where samples are tuples, otherwise a list, as PyTorch has it
    if isinstance(first, dict):
        made = {key: default_collate([sample[key] for sample in batch]) for key in first}
        return made if type(first) is dict else _like(first, made)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(part) for part in zip(*batch, strict=True)))
    if isinstance(first, (tuple, list)):
        sizes = sorted(set(map(len, batch)))
        if len(sizes) != 1:
            raise ShapeError(
                "collate", f"samples have {sizes} elements; each needs the same number", fix="pass a collate_fn"
            )
        return [default_collate(part) for part in zip(*batch, strict=True)]
    raise DTypeError(
        "collate", f"samples contain a {type(first).__name__}, which cannot be stacked", fix="pass a collate_fn"
    )


def _like(first, made: dict):
    try:
        return type(first)(made)
    except TypeError:
        return made


def _stack(batch: list | tuple):
    batch, first = list(batch), batch[0]
    out = None
    if memory.allocate is not None:
        out = memory.allocate((len(batch), *first.shape), first.dtype)
    try:
        return _runtime.stack_rows(batch, out)
    except ShapeError as error:
        raise ShapeError(
            "collate",
            error.rule.replace("tensor ", "sample "),
            fix="make samples of one shape and type, or pass a collate_fn that pads",
        ) from None


_LARGE = 1 << 14  # bytes of a tensor from which it is copied at once


class Stacker:
    """default_collate for samples that come one by one: a large tensor goes to its row of the batch as soon as it is there.

    So its own memory is free for the next sample, and still in the cache when it is copied; keeping all samples until the batch is
    full would fault in fresh memory for each.
    """

    def __init__(self, count: int):
        self.count, self.index = count, 0
        self._rows: dict[tuple, Tensor] = {}  # by place in the sample

    def take(self, sample, place: tuple = ()):
        """The sample as it is to be kept until finish(): large tensors are copied, and replaced by a mark."""
        kind = type(sample)
        if kind is tuple or kind is list:
            return [self.take(part, (*place, i)) for i, part in enumerate(sample)]
        if kind is dict:
            return {key: self.take(part, (*place, key)) for key, part in sample.items()}
        numpy = sys.modules.get("numpy")
        if numpy is not None and kind is numpy.ndarray:
            if (
                sample.nbytes < _LARGE
                or sample.dtype.kind in "OSUV"
                or not sample.flags.aligned
                or not sample.dtype.isnative
            ):
                return sample
            sample = _runtime.from_numpy(sample)
        elif kind is not Tensor or sample.numel() * sample.dtype.itemsize < _LARGE:
            return sample
        rows = self._rows.get(place)
        if rows is None:
            if self.index:  # the first sample had none here, or a small one
                return sample
            shape = (self.count, *sample.shape)
            rows = None if memory.allocate is None else memory.allocate(shape, sample.dtype)
            rows = _runtime.empty(shape, sample.dtype) if rows is None else rows
            self._rows[place] = rows
        elif rows.dtype is not sample.dtype or rows.shape[1:] != sample.shape:
            raise _misfit(rows.dtype, rows.shape[1:], self.index, sample)
        i = self.index
        _runtime.stack_rows([sample], rows[i : i + 1])
        return _Row(rows)

    @property
    def used(self) -> bool:
        """Whether the samples so far had anything to copy."""
        return bool(self._rows)

    def add(self, sample):
        kept = self.take(sample)
        self.index += 1
        return kept


class _Row:
    """Stands for a tensor that is in its row of the batch already."""

    __slots__ = ("rows",)

    def __init__(self, rows):
        self.rows = rows


def _misfit(dtype, shape, index, sample):
    return ShapeError(
        "collate",
        f"sample 0 is {dtype} {tuple(shape)} and sample {index} is {sample.dtype} {tuple(sample.shape)}",
        fix="make samples of one shape and type, or pass a collate_fn that pads",
    )


def default_convert(sample):
    """A sample as it is, but with NumPy arrays as tensors: what loaders without batches do.

    >>> import numpy as np
    >>> td.data.default_convert({"x": np.ones(2, np.float32)})
    {'x': tensor([1., 1.])}
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(sample, numpy.ndarray) and sample.dtype.kind not in "OSUV":
        return _runtime.from_numpy(sample)
    if isinstance(sample, dict):
        return {key: default_convert(value) for key, value in sample.items()}
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*(default_convert(value) for value in sample))
    if isinstance(sample, (tuple, list)):
        return type(sample)(default_convert(value) for value in sample)
    return sample
