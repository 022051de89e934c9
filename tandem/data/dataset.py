"""Datasets: samples by index, or one after the other."""

from __future__ import annotations

import bisect
import itertools
import types

from tandem import _runtime
from tandem.data.collate import empty
from tandem.errors import IndexRangeError, ShapeError, ValueRangeError
from tandem.ops.random import randperm
from tandem.tensors.constructors import asarray

Tensor = _runtime.Tensor


class Dataset:
    """Samples by index: define `__getitem__(index)` and `__len__()`.

    A dataset may also define `__getitems__(indices)`, which gives the samples of a batch as a list, or as one ready batch if
    `makes_batches` is true. `draws` says whether samples use random numbers; without, loaders need not set generators.

    >>> class Squares(td.data.Dataset):
    ...     def __getitem__(self, index):
    ...         return index * index
    ...     def __len__(self):
    ...         return 4
    >>> [batch.tolist() for batch in td.data.DataLoader(Squares(), batch_size=2)]
    [[0, 1], [4, 9]]
    """

    makes_batches = False
    draws = True
    __class_getitem__ = classmethod(types.GenericAlias)  # Dataset[Sample], for annotations and bases

    def __getitem__(self, index):
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__(index)")

    def __add__(self, other):
        return ConcatDataset([self, other])

    def map(self, function) -> MapDataset:
        """This dataset with a function applied to each sample."""
        return MapDataset(self, function)


class IterableDataset(Dataset):
    """Samples one after the other: define `__iter__()`.

    With several workers, each goes through the stream and makes its own share of the batches; so samples come once, and in the
    same order whatever the number of workers. Going through samples that others make should be cheap: put the work into
    `.map(function)`, which is done for kept samples only. With `sharded = True`, `__iter__` itself must give each worker another
    part, by get_worker_info().

    >>> class Count(td.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(3))
    >>> [batch.tolist() for batch in td.data.DataLoader(Count(), batch_size=2)]
    [[0, 1], [2]]
    """

    sharded = False

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__()")

    def __add__(self, other):
        return ChainDataset([self, other])

    def map(self, function) -> MapIterable:
        """This stream with a function applied to each sample."""
        return MapIterable(self, function)


class MapDataset(Dataset):
    """A dataset with a function applied to each sample.

    >>> td.data.MapDataset([1, 2, 3], str)[1]
    '2'
    """

    def __init__(self, dataset, function):
        self.dataset, self.function = dataset, function

    def __getitem__(self, index):
        return self.function(self.dataset[index])

    def __len__(self):
        return len(self.dataset)


class MapIterable(IterableDataset):
    """A stream with a function applied to each sample that is kept.

    >>> list(td.data.MapIterable([1, 2], str))
    ['1', '2']
    """

    def __init__(self, dataset, function):
        self.dataset, self.function = dataset, function

    @property
    def sharded(self):
        return getattr(self.dataset, "sharded", False)

    def __iter__(self):
        return _MapIterator(iter(self.dataset), self.function)


class _MapIterator:
    def __init__(self, inner, function):
        self.inner, self.function = inner, function

    def __iter__(self):
        return self

    def __next__(self):
        return self.function(next(self.inner))

    def skip(self):
        """Moves over a sample without making it."""
        getattr(self.inner, "skip", self.inner.__next__)()


class TensorDataset(Dataset):
    """Rows of tensors that have the same first size. Whole batches are copied at once.

    >>> data = td.data.TensorDataset(td.arange(4), td.zeros(4, 2))
    >>> data[1]
    (tensor(1), tensor([0., 0.]))
    """

    makes_batches = True
    draws = False

    def __repr__(self):
        return f"TensorDataset({', '.join(f'{t.dtype}{list(t.shape)}' for t in self.tensors)})"

    def __init__(self, *tensors):
        if not tensors:
            raise ValueRangeError("TensorDataset", "there are no tensors")
        self.tensors = tuple(asarray(t) for t in tensors)
        sizes = [t.shape[0] if t.ndim else None for t in self.tensors]
        if None in sizes or len(set(sizes)) > 1:
            shapes = ", ".join(str(tuple(t.shape)) for t in self.tensors)
            raise ShapeError("TensorDataset", f"the tensors are {shapes}; they need the same first size")

    def __getitem__(self, index):
        return tuple(t[index] for t in self.tensors)

    def __getitems__(self, indices):
        batch = []
        for t in self.tensors:
            t = t.detach()
            batch.append(_runtime.take_rows(t, indices, empty((len(indices), *t.shape[1:]), t.dtype)))
        return tuple(batch)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


class Subset(Dataset):
    """The samples of a dataset at some indices.

    >>> list(td.data.Subset([10, 20, 30], [2, 0]))
    [30, 10]
    """

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices

    @property
    def makes_batches(self):
        return getattr(self.dataset, "makes_batches", False)

    @property
    def draws(self):
        return getattr(self.dataset, "draws", True)

    def __getitem__(self, index):
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices):
        chosen = [int(self.indices[i]) for i in indices]
        fetch = getattr(self.dataset, "__getitems__", None)
        return fetch(chosen) if fetch else [self.dataset[i] for i in chosen]

    def __len__(self):
        return len(self.indices)


class ConcatDataset(Dataset):
    """Datasets one after the other.

    >>> list(td.data.ConcatDataset([[1, 2], [3]]))
    [1, 2, 3]
    """

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueRangeError("ConcatDataset", "there are no datasets")
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __getitem__(self, index):
        size = len(self)
        if not -size <= index < size:
            raise IndexRangeError("ConcatDataset", f"index {index} is out of range for {size} samples")
        index %= size
        which = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]

    def __len__(self):
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset):
    """Streams one after the other.

    >>> list(td.data.ChainDataset([[1, 2], [3]]))
    [1, 2, 3]
    """

    def __init__(self, datasets):
        self.datasets = list(datasets)

    def __iter__(self):
        return itertools.chain.from_iterable(self.datasets)


class StackDataset(Dataset):
    """Samples of several datasets side by side: a tuple of them, or with keywords a dict.

    >>> td.data.StackDataset(x=[1, 2], y=[3, 4])[0]
    {'x': 1, 'y': 3}
    """

    def __init__(self, *datasets, **named):
        if bool(datasets) == bool(named):
            raise ValueRangeError("StackDataset", "pass datasets by position, or by keyword, and not none")
        self.datasets = named or datasets
        sizes = {len(d) for d in (named.values() if named else datasets)}
        if len(sizes) > 1:
            raise ShapeError("StackDataset", f"the datasets have {sorted(sizes)} samples; they need the same number")

    def __getitem__(self, index):
        if isinstance(self.datasets, dict):
            return {name: d[index] for name, d in self.datasets.items()}
        return tuple(d[index] for d in self.datasets)

    def __len__(self):
        return len(next(iter(self.datasets.values())) if isinstance(self.datasets, dict) else self.datasets[0])


def random_split(dataset, lengths, generator=None) -> list[Subset]:
    """Parts of a dataset, at random and without overlap. lengths: numbers of samples, or fractions that sum to 1.

    >>> [len(part) for part in td.data.random_split(range(10), [0.8, 0.2])]
    [8, 2]
    """
    size = len(dataset)
    lengths = list(lengths)
    if sum(lengths) != size and abs(sum(lengths) - 1) < 1e-6:
        fractions, lengths = lengths, [int(size * f) for f in lengths]
        for i in range(size - sum(lengths)):
            lengths[i % len(fractions)] += 1
    if sum(lengths) != size:
        raise ValueRangeError(
            "random_split", f"the lengths {lengths} add up to {sum(lengths)}; the dataset has {size} samples"
        )
    order = randperm(size, generator=generator).tolist()
    ends = list(itertools.accumulate(lengths))
    return [Subset(dataset, order[end - n : end]) for n, end in zip(lengths, ends, strict=True)]


__all__ = [
    "ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "MapDataset", "MapIterable", "StackDataset", "Subset",
    "TensorDataset", "random_split",
]  # fmt: skip


TEST_EVERY = 5


def split_dataset(inputs, targets, split: str | None) -> TensorDataset:
    """Rows of arrays as a dataset: all of them, or the part for training or testing."""
    if split not in (None, "train", "test"):
        raise ValueRangeError("sets", f"split={split!r} is not 'train', 'test' or None")
    if split is not None:
        rows = [i for i in range(len(targets)) if (i % TEST_EVERY == TEST_EVERY - 1) == (split == "test")]
        inputs, targets = inputs[rows], targets[rows]
    return TensorDataset(asarray(inputs, copy=True), asarray(targets, copy=True))
