"""DataLoader: batches of a dataset, made here, in threads or in worker processes."""

from __future__ import annotations

import collections
import itertools
import os
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tandem import cuda
from tandem.data.collate import default_collate, default_convert
from tandem.data.dataset import IterableDataset
from tandem.data.fetch import Ended, MapFetcher, StreamFetcher, refuse_in_child
from tandem.data.prefetch import Pinned, Sender
from tandem.data.sampler import BatchSampler, RandomSampler, SequentialSampler, begin, draw_seed
from tandem.data.seeding import mix, undisturbed
from tandem.devices import as_device
from tandem.errors import UnsupportedError, ValueRangeError

_VERSION = 1


class DataLoader:
    """Iterates over a dataset in batches.

    batch_size: samples in a batch; None gives single samples
    shuffle: a new random order in each epoch
    sampler, batch_sampler: an order of your own: an iterable of indices, or of lists of them
    num_workers: processes, or threads with worker_type="thread", that make batches ahead; 0 makes them when they are asked for
    collate_fn: makes a batch from a list of samples
    drop_last: leave out a last batch that is not full
    timeout: seconds to wait for a batch of a worker before that is an error; 0 waits for ever
    worker_init_fn: called in each worker process with its number, before anything else
    multiprocessing_context: "forkserver" (the default), "spawn", "fork", or a context of multiprocessing
    generator, seed: where the order and the samples' random numbers start; seed=None takes one from the generator
    prefetch_factor: batches that each worker makes ahead, 2 unless given
    persistent_workers: keep the processes from one epoch to the next
    device: where batches are to be: "cuda" copies them there ahead, while earlier ones are being used (Note [Prefetch])
    pin_memory, pin_memory_device: pinned memory for batches, where there is a CUDA device; device= does that by itself

    Order and random numbers are a function of seed, epoch and index, so the batches are the same for any number of workers, and
    state_dict() resumes exactly, in the middle of an epoch too. See Note [Seeds of samples].

    >>> data = td.data.TensorDataset(td.arange(5))
    >>> for (x,) in td.data.DataLoader(data, batch_size=2):
    ...     print(x)
    tensor([0, 1])
    tensor([2, 3])
    tensor([4])
    """

    __class_getitem__ = classmethod(types.GenericAlias)

    def __init__(
        self,
        dataset,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler=None,
        batch_sampler=None,
        num_workers: int = 0,
        collate_fn=None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn=None,
        multiprocessing_context=None,
        generator=None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        worker_type: str = "process",
        seed: int | None = None,
        device=None,
    ):
        stream = isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")
        _check(
            stream,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            drop_last,
            timeout,
            worker_type,
            prefetch_factor,
        )
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.num_workers, self.worker_type, self.timeout = num_workers, worker_type, timeout
        self.collate_fn, self.worker_init_fn = collate_fn, worker_init_fn
        self.multiprocessing_context, self.persistent_workers = multiprocessing_context, persistent_workers
        self.generator, self.prefetch_factor = generator, 2 if prefetch_factor is None else prefetch_factor
        self.pin_memory, self.pin_memory_device, self.in_order = pin_memory, pin_memory_device, in_order
        self.device = None if device is None else as_device(device)
        self.stream = stream
        self.sampler, self.batch_sampler = sampler, batch_sampler
        if batch_sampler is not None:
            self.batch_size = None
        elif not stream:
            if sampler is None:
                self.sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
            if batch_size is not None:
                self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)
        self._seed = seed
        self._epoch = self._position = 0
        self._shares: list[int] = []  # batches that each worker of a sharded stream has given
        self._begun = False
        self._current = None
        self._pool = None

    def __repr__(self):
        size = f"{len(self.dataset)} samples" if hasattr(self.dataset, "__len__") else "a stream"
        workers = f", num_workers={self.num_workers}" if self.num_workers else ""
        return f"DataLoader({type(self.dataset).__name__} of {size}, batch_size={self.batch_size}{workers})"

    # -- order and position

    @property
    def seed(self) -> int:
        """What order and random numbers start from."""
        if self._seed is None:
            self._seed = draw_seed(self.generator)
        return self._seed

    @property
    def epoch(self) -> int:
        """The epoch that is running, or comes next."""
        return self._epoch

    def set_epoch(self, epoch: int):
        """The epoch that the next iteration is."""
        self._epoch, self._position, self._shares, self._begun = epoch, 0, [], False

    def state_dict(self) -> dict:
        """Where the loader is: what the loop got so far counts, not what workers have made ahead."""
        return {
            "version": _VERSION, "seed": self.seed, "epoch": self._epoch, "batches": self._position, "batch_size": self.batch_size,
            "samples": None if self.stream else len(self.dataset), "shares": list(self._shares),
        }  # fmt: skip

    def load_state_dict(self, state: dict):
        """The next iteration goes on where state_dict() was called; the number of workers may be another one."""
        if state["version"] > _VERSION:
            raise ValueRangeError(
                "load_state_dict", f"the state has version {state['version']}; this one reads up to {_VERSION}"
            )
        own = {"batch_size": self.batch_size, "samples": None if self.stream else len(self.dataset)}
        for name, value in own.items():
            if state[name] != value:
                raise ValueRangeError(
                    "load_state_dict",
                    f"the state is of a loader with {name} {state[name]}, this one has {value}; its position would mean nothing",
                )
        if state["shares"] and len(state["shares"]) != max(self.num_workers, 1):
            raise ValueRangeError(
                "load_state_dict",
                f"a sharded stream read by {len(state['shares'])} workers needs as many to go on, not {self.num_workers}",
            )
        self._seed, self._epoch, self._position = state["seed"], state["epoch"], state["batches"]
        self._shares, self._begun = list(state["shares"]), False

    def __len__(self):
        if self.stream:
            size = len(self.dataset)  # raises TypeError for a stream that does not know
            if self.batch_size is None:
                return size
            return size // self.batch_size if self.drop_last else -(-size // self.batch_size)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)

    # -- iteration

    def __iter__(self) -> Iterator[Any]:
        if self._begun:  # the last loop was left before its end
            self._epoch, self._position, self._shares = self._epoch + 1, 0, []
        self._begun = True
        if self.num_workers == 0:
            iterator = _Here(self)
        elif self.worker_type == "thread":
            iterator = _Threads(self)
        else:
            from tandem.data.processes import ProcessIterator

            iterator = ProcessIterator(self)
        self._current = iterator
        if self.device is not None and self.device.type != "cpu":
            self._current = Sender(iterator, self.device, 2, self)
        elif self.pin_memory and cuda.is_available():
            self._current = Pinned(iterator, self)
        return self._current

    def _fetcher(self, globally: bool = True):
        batched = self.batch_sampler is not None or self.batch_size is not None
        collate = self.collate_fn or (None if batched else default_convert)
        if self.stream:
            return StreamFetcher(self.dataset, collate, batched, self.drop_last, globally)
        return MapFetcher(self.dataset, collate, batched, globally)

    def _tasks(self):
        """What batches consist of, from the position on: indices, or (start, count) of a stream."""
        if self.stream:
            size = self.batch_size or 1
            return ((i * size, size) for i in itertools.count(self._position))
        indices = self.sampler if self.batch_sampler is None else self.batch_sampler
        begin(indices, self.seed, self._epoch)
        return itertools.islice(iter(indices), self._position, None)

    def _epoch_key(self) -> int:
        return mix(self.seed, self._epoch, 0)

    def _delivered(self, iterator, share: int | None = None):
        if getattr(self._current, "batches", None) is iterator:  # on its way to the device
            self._current.made_by = share
        if iterator is self._current:
            self._position += 1
            if share is not None:
                self._shares[share] += 1

    def _finished(self, iterator):
        if iterator is self._current:
            self._epoch, self._position, self._shares = self._epoch + 1, 0, []
            self._begun, self._current = False, None

    def close(self):
        """Ends worker processes that persistent_workers kept; the loader can be used again."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


class _Iterator:
    def __iter__(self):
        return self

    def close(self):
        """Ends the iteration and what works for it."""


class _Here(_Iterator):
    """Makes each batch when it is asked for."""

    def __init__(self, loader: DataLoader):
        self.loader, self.tasks = loader, loader._tasks()
        self.draws = loader.stream or getattr(loader.dataset, "draws", True)
        with undisturbed():
            self.fetcher = loader._fetcher().begin(loader._epoch_key())

    def __next__(self):
        try:
            task = next(self.tasks)
            if self.draws:
                with undisturbed():
                    batch = self.fetcher.fetch(task)
            else:
                batch = self.fetcher.fetch(task)
        except (StopIteration, Ended):  # of the sampler, or of the stream: fetch makes errors of others
            self.loader._finished(self)
            raise StopIteration from None
        self.loader._delivered(self)
        return batch


class _Threads(_Iterator):
    """Makes batches ahead in threads, which suits datasets that wait for files or leave the GIL."""

    def __init__(self, loader: DataLoader):
        self.loader, self.tasks = loader, loader._tasks()
        self.fetcher = loader._fetcher(globally=False).begin(loader._epoch_key())
        # A stream is one iterator: threads could not go through it side by side.
        workers = 1 if loader.stream else loader.num_workers
        self.executor = ThreadPoolExecutor(workers, thread_name_prefix="tandem-data")
        self.ahead = collections.deque()
        self.count = max(loader.prefetch_factor * loader.num_workers, 1)
        self.process = os.getpid()

    def __next__(self):
        refuse_in_child(self.process, "threads")
        while len(self.ahead) < self.count and (task := next(self.tasks, None)) is not None:
            self.ahead.append(self.executor.submit(self.fetcher.fetch, task))
        try:
            if not self.ahead:
                raise Ended
            batch = self.ahead.popleft().result(self.loader.timeout or None)
        except Ended:
            self.close()
            self.loader._finished(self)
            raise StopIteration from None
        self.loader._delivered(self)
        return batch

    def close(self):
        self.tasks, self.ahead = iter(()), collections.deque()
        if os.getpid() == self.process:
            self.executor.shutdown(wait=False, cancel_futures=True)

    def __del__(self):
        if hasattr(self, "executor"):
            self.close()


def _check(
    stream, batch_size, shuffle, sampler, batch_sampler, num_workers, drop_last, timeout, worker_type, prefetch_factor
):
    def refuse(text, fix=None):
        raise ValueRangeError("DataLoader", text, fix=fix)

    if stream and (shuffle or sampler is not None or batch_sampler is not None):
        raise UnsupportedError(
            "DataLoader", "an iterable dataset has its own order: shuffle, sampler and batch_sampler mean nothing"
        )
    if sampler is not None and shuffle:
        refuse("sampler and shuffle exclude each other", "shuffle in the sampler")
    if batch_sampler is not None and (batch_size not in (1, None) or shuffle or sampler is not None or drop_last):
        refuse("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
    if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
        refuse(f"batch_size={batch_size!r} must be a positive int, or None")
    if batch_size is None and drop_last:
        refuse("drop_last means nothing without batches")
    if num_workers < 0 or timeout < 0:
        refuse(f"num_workers={num_workers} and timeout={timeout} must not be negative")
    if worker_type not in ("process", "thread"):
        refuse(f"worker_type={worker_type!r} is neither 'process' nor 'thread'")
    if prefetch_factor is not None and prefetch_factor < 1:
        refuse(f"prefetch_factor={prefetch_factor} must be at least 1")


__all__ = ["DataLoader", "default_collate"]
