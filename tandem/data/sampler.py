"""Samplers: the order in which indices come.

Note [Order]
A loader calls begin(seed, epoch) of its sampler before it iterates; the order is a function of these two, so that a resumed loader
finds the same one. A sampler that is iterated by hand draws a new seed from its generator each time.
"""

from __future__ import annotations

import itertools
import os
import sys
import types

from tandem import _runtime, dtypes
from tandem.data.seeding import mix
from tandem.errors import ValueRangeError
from tandem.ops.random import multinomial, randint, randperm
from tandem.tensors.constructors import asarray

Generator = _runtime.Generator
_CHUNK = 1 << 16  # indices that are Python ints at a time


def draw_seed(generator=None) -> int:
    """A seed from a generator, which moves on."""
    generator = generator if generator is not None else _runtime.default_generator()
    seed, _ = generator.get_state()
    return mix(seed, generator._advance(1))


class Sampler:
    """Base of samplers: define `__iter__`, and `__len__` where it is known. Any iterable of indices will do."""

    __class_getitem__ = classmethod(types.GenericAlias)

    def __iter__(self):
        raise NotImplementedError

    def begin(self, seed: int, epoch: int):
        """Called by loaders before each epoch; the order should depend on nothing else."""


def _chunks(indices):
    for start in range(0, indices.shape[0], _CHUNK):
        yield from indices[start : start + _CHUNK].tolist()


class SequentialSampler(Sampler):
    """All indices in order.

    >>> list(td.data.SequentialSampler(range(3)))
    [0, 1, 2]
    """

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


class _Random(Sampler):
    """Keeps the seed that a loader sets, or draws one."""

    def __init__(self, generator=None):
        self.generator = generator
        self._key: int | None = None

    def begin(self, seed: int, epoch: int):
        self._key = mix(seed, epoch, 1)

    def _generator(self):
        key, self._key = self._key, None
        return Generator(draw_seed(self.generator) if key is None else key)


_MOST_AT_ONCE = 1 << 20  # random indices


class RandomSampler(_Random):
    """Indices in random order, or drawn with replacement.

    >>> sorted(td.data.RandomSampler(range(3)))
    [0, 1, 2]
    """

    def __init__(self, data_source, replacement: bool = False, num_samples: int | None = None, generator=None):
        super().__init__(generator)
        self.data_source, self.replacement = data_source, replacement
        self._num_samples = num_samples
        if num_samples is not None and num_samples <= 0:
            raise ValueRangeError("RandomSampler", f"num_samples={num_samples} must be more than 0")

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self):
        generator, size, left = self._generator(), len(self.data_source), self.num_samples
        if size == 0:
            return
        if self.replacement:
            while left > 0:  # not all at once: there may be more than memory holds
                count = min(left, _MOST_AT_ONCE)
                yield from _chunks(randint(0, size, (count,), generator=generator))
                left -= count
            return
        while left > 0:
            yield from itertools.islice(_chunks(randperm(size, generator=generator)), left)
            left -= size

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(_Random):
    """Some indices, in random order.

    >>> sorted(td.data.SubsetRandomSampler([5, 7]))
    [5, 7]
    """

    def __init__(self, indices, generator=None):
        super().__init__(generator)
        self.indices = indices

    def __iter__(self):
        for i in _chunks(randperm(len(self.indices), generator=self._generator())):
            yield int(self.indices[i])

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(_Random):
    """Indices drawn with probabilities proportional to weights.

    >>> list(td.data.WeightedRandomSampler([0.0, 1.0], 3))
    [1, 1, 1]
    """

    def __init__(self, weights, num_samples: int, replacement: bool = True, generator=None):
        super().__init__(generator)
        self.weights = asarray(weights, dtype=dtypes.float64)
        self.num_samples, self.replacement = num_samples, replacement
        if self.weights.ndim != 1 or not num_samples > 0:
            raise ValueRangeError(
                "WeightedRandomSampler",
                f"weights of shape {tuple(self.weights.shape)} and num_samples={num_samples}; one axis and at least 1 are needed",
            )
        if not replacement and num_samples > self.weights.shape[0]:
            raise ValueRangeError(
                "WeightedRandomSampler",
                f"{num_samples} of {self.weights.shape[0]} indices cannot be sampled without replacement",
            )

    def __iter__(self):
        return _chunks(multinomial(self.weights, self.num_samples, self.replacement, generator=self._generator()))

    def __len__(self):
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of indices of a sampler.

    >>> list(td.data.BatchSampler(range(5), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler, batch_size: int, drop_last: bool = False):
        if not isinstance(batch_size, int) or batch_size <= 0:
            raise ValueRangeError("BatchSampler", f"batch_size={batch_size!r} must be a positive int")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def begin(self, seed: int, epoch: int):
        begin(self.sampler, seed, epoch)

    def __iter__(self):
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self):
        size = len(self.sampler)
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)


class DistributedSampler(Sampler):
    """The part of the indices that one of several replicas takes.

    num_replicas, rank: those of the process group, or of the environment's WORLD_SIZE and RANK, unless given
    pad: whether parts have the same length, some indices coming twice (or, with drop_last, being left out). Without, every index
        comes exactly once, and parts may differ by one

    An epoch that was begun with another number of replicas goes on where it stopped: `resume(used)` leaves out the indices that all
    replicas together have used, and divides the rest.

    >>> list(td.data.DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 0]
    >>> list(td.data.DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False, pad=False))
    [1, 3]
    """

    def __init__(
        self, dataset, num_replicas=None, rank=None, shuffle: bool = True, seed: int = 0, drop_last: bool = False, pad: bool = True
    ):  # fmt: skip
        here = _place()
        self.num_replicas = here[1] if num_replicas is None else num_replicas
        self.rank = here[0] if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueRangeError("DistributedSampler", f"rank {self.rank} is not one of {self.num_replicas} replicas")
        if drop_last and not pad:
            raise ValueRangeError(
                "DistributedSampler", "drop_last leaves indices out, and pad=False uses each exactly once"
            )
        self.dataset, self.shuffle, self.seed, self.drop_last, self.pad = dataset, shuffle, seed, drop_last, pad
        self.epoch, self._fixed = 0, False
        self.used = 0  # indices of this epoch that replicas have used before

    def set_epoch(self, epoch: int):
        """The epoch whose order comes next; from then on the caller counts epochs, not the loader."""
        if epoch != self.epoch:
            self.used = 0
        self.epoch, self._fixed = epoch, True

    def resume(self, used: int):
        """Goes on with an epoch of which all replicas together have used so many indices: ranks times steps times batch size."""
        if not 0 <= used <= len(self.dataset):
            raise ValueRangeError("DistributedSampler", f"used={used} of {len(self.dataset)} indices")
        self.used = used

    def begin(self, seed: int, epoch: int):
        # The seed is this sampler's own: replicas must agree on the order, and their loaders' seeds may differ.
        if not self._fixed:
            if epoch != self.epoch:
                self.used = 0
            self.epoch = epoch

    def __iter__(self):
        size = len(self.dataset)
        if self.shuffle:
            order = randperm(size, generator=Generator(mix(self.seed, self.epoch, 1))).tolist()
        else:
            order = list(range(size))
        order = order[self.used :]
        if not self.pad:
            return iter(order[self.rank :: self.num_replicas])
        total = len(self) * self.num_replicas
        while len(order) < total and order:
            order += order[: total - len(order)]
        return iter(order[self.rank : total : self.num_replicas])

    def __len__(self):
        size = len(self.dataset) - self.used
        if not self.pad:
            return len(range(self.rank, size, self.num_replicas))
        return size // self.num_replicas if self.drop_last else -(-size // self.num_replicas)


def _place() -> tuple[int, int]:
    """(rank, number of ranks) of this process."""
    group = sys.modules.get("tandem.distributed.group")
    rank = None if group is None else group.current()
    if rank is not None:
        return rank.rank, rank.size
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def begin(sampler, seed: int, epoch: int):
    """Tells a sampler, ours or another, which epoch comes."""
    for name, arguments in (("begin", (seed, epoch)), ("set_epoch", (epoch,))):
        method = getattr(sampler, name, None)
        if method is not None:
            method(*arguments)
            return
