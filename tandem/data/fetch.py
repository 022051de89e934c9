"""Making one batch: what loaders do in the main process, in threads and in worker processes alike."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from typing import Any

from tandem.data.collate import Stacker, default_collate
from tandem.data.seeding import begin_sample, end_sample, find_generators, present_sample
from tandem.errors import WorkerError


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker this is; see get_worker_info()."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process of a loader: which one it is, of how many. None in the main process.

    Also None while a stream is read that is not `sharded`: there every worker reads the same, and the loader deals it out.

    >>> td.data.get_worker_info() is None
    True
    """
    return _info


def set_worker_info(info: WorkerInfo | None):
    global _info
    _info = info


class Ended(Exception):
    """The stream has no further batch."""


def stop_error(what: str) -> WorkerError:
    """For a StopIteration of the user's code, which would end the loop over the loader without a word."""
    return WorkerError(
        "DataLoader",
        f"{what} raised StopIteration, which would end the epoch early",
        fix="raise IndexError for an index that does not exist; end a stream by returning from __iter__",
    )


def refuse_in_child(process: int, workers: str):
    """An iterator works in the process that began the loop, where its workers are."""
    if os.getpid() != process:
        raise WorkerError(
            "DataLoader",
            f"this loop was begun by process {process}, which has its {workers}; a forked child cannot go on with it",
            fix="start a loop of its own in the child: iter(loader)",
        )


@dataclass
class MapFetcher:
    """Batches of a dataset with __getitem__."""

    dataset: Any
    collate: Any
    batched: bool
    globally: bool = True  # whether the global generators may be set

    def begin(self, epoch_key: int):
        self.epoch_key = epoch_key
        return self

    def fetch(self, indices):
        dataset, key, outer = self.dataset, self.epoch_key, present_sample()
        draws = getattr(dataset, "draws", True)
        if draws and self.globally:
            find_generators()  # once a batch: they may have been exchanged
        method, at = "__getitem__", indices  # for the error
        try:
            if not self.batched:
                if draws:
                    begin_sample(key, _number(indices), self.globally)
                return _collated(self.collate, dataset[indices])
            if hasattr(dataset, "__getitems__"):
                method = "__getitems__"
                if draws and indices:
                    begin_sample(key, _number(indices[0]), self.globally)
                samples = dataset.__getitems__(indices)
                return (
                    samples
                    if getattr(dataset, "makes_batches", False) and self.collate is None
                    else self._collate(samples)
                )
            samples, globally = [], self.globally
            stacker = Stacker(len(indices)) if self.collate is None else None
            for at in indices:
                if draws:
                    begin_sample(key, at if type(at) is int else _number(at), globally)
                sample = dataset[at]
                if stacker is not None:
                    sample = stacker.add(sample)
                    if (
                        not stacker.used
                    ):  # the first sample has no large tensors, so it has nothing to do for the others
                        stacker = None
                samples.append(sample)
            return self._collate(samples)
        except StopIteration as error:
            raise stop_error(f"{type(dataset).__name__}.{method}({at!r})") from error
        finally:
            end_sample(outer)

    def _collate(self, samples):
        return _collated(self.collate or default_collate, samples)


def _collated(collate, samples):
    try:
        return collate(samples)
    except StopIteration as error:
        raise stop_error(f"{getattr(collate, '__name__', type(collate).__name__)}, the collate_fn,") from error


def _number(index) -> int:
    return index if isinstance(index, int) else zlib.crc32(repr(index).encode())


class StreamFetcher:
    """Batches of a dataset with __iter__: those it is asked for, in rising order."""

    def __init__(self, dataset, collate, batched: bool, drop_last: bool, globally: bool = True):
        self.dataset, self.collate, self.batched, self.drop_last, self.globally = (
            dataset,
            collate,
            batched,
            drop_last,
            globally,
        )

    def begin(self, epoch_key: int):
        self.epoch_key, self.position = epoch_key, 0
        outer = present_sample()
        # What __iter__ draws, such as an order of files, must be the same for all workers.
        begin_sample(epoch_key, -1, self.globally)
        try:
            self.iterator = iter(self.dataset)
        except StopIteration as error:
            raise stop_error(f"{type(self.dataset).__name__}.__iter__()") from error
        finally:
            end_sample(outer)
        self.skip = getattr(self.iterator, "skip", self.iterator.__next__)
        return self

    def fetch(self, place):
        """Samples start ... start + count of the stream as a batch; raises Ended behind its end."""
        (start, count), outer = place, present_sample()
        try:
            try:
                while self.position < start:
                    # A generator runs on into the code before the next sample; that must not depend on who asks for it.
                    begin_sample(self.epoch_key, self.position, self.globally)
                    self.skip()
                    self.position += 1
            except StopIteration:
                raise Ended from None
            samples = []
            for _ in range(count):
                begin_sample(self.epoch_key, self.position, self.globally)
                try:
                    samples.append(next(self.iterator))
                except StopIteration:
                    break
                self.position += 1
            if not samples or (self.drop_last and len(samples) < count):
                raise Ended
            return (
                _collated(self.collate or default_collate, samples)
                if self.batched
                else _collated(self.collate, samples[0])
            )
        finally:
            end_sample(outer)
