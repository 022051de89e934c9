"""Dynamic batching: requests that wait at one time become one call of the model.

Note [Batches]
A batch leaves when it has `most` rows, or when its oldest request has waited `budget` seconds; while the model runs, the next
one gathers. Requests go together if their arrays have the same types and sizes but for the first axis; rows must be
independent (rows.py). The queue is bounded in rows: what does not fit is refused at once. A request whose client has gone, or
whose time is over, is left out. A batch that fails is run again in halves, so that only the requests whose values are at fault
get the error.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tandem.serve.errors import RequestError, overloaded

Arrays = dict[str, np.ndarray]


class _Waiting:
    __slots__ = ("arrays", "future", "kind", "rows", "since")

    def __init__(self, arrays: Arrays, rows: int, future):
        self.arrays, self.rows, self.future = arrays, rows, future
        self.kind = tuple((name, a.dtype.str, a.shape[1:]) for name, a in sorted(arrays.items()))
        self.since = time.monotonic()


class Batcher:
    """run: arrays -> arrays, all with rows along their first axis. `observe` is told the rows of every batch."""

    def __init__(self, run: Callable[[Arrays], Arrays], most: int = 32, budget: float = 0.002, limit: int = 1024,
                 observe: Callable[[int], None] = lambda rows: None):  # fmt: skip
        self._run, self.most, self.budget, self.limit = run, most, budget, limit
        self._observe = observe
        self._waiting: deque[_Waiting] = deque()
        self.rows = 0  # that wait or run
        self._queued = 0  # that wait
        self._last = 1  # of the last batch
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "tandem-serve")
        self._task: asyncio.Task | None = None
        self._closing = False

    async def submit(self, arrays: Arrays) -> Arrays:
        """The results for these rows."""
        rows = max((len(a) for a in arrays.values() if a.ndim), default=1)
        if self._closing:
            raise RequestError(503, "the model is being replaced or the server stops")
        if rows > self.limit:  # trying again would not help
            raise RequestError(413, f"the request has {rows} rows; at most {self.limit} are taken")
        if self.rows + rows > self.limit:
            raise overloaded(f"{self.rows} rows are waiting, and there is room for {self.limit}")
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._loop())
        item = _Waiting(arrays, rows, asyncio.get_running_loop().create_future())
        self._waiting.append(item)
        self._queued += rows
        self.rows += rows
        self._wake.set()
        try:
            return await item.future
        finally:
            self.rows -= rows

    async def close(self):
        """Lets what waits finish, and takes no more."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def _loop(self):
        while not self._closing or self._waiting:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                continue
            await self._gather()
            batch = self._take()
            if batch:
                await self._call(batch)

    async def _gather(self):
        """Waits until there are as many rows as the last batch had (those who ask again as soon as they are answered are all here
        then), the batch is full, or its oldest request has waited long enough."""
        end = self._waiting[0].since + self.budget
        while not self._closing and self._queued < min(self.most, self._last):
            left = end - time.monotonic()
            if left <= 0:
                return
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), left)
            except TimeoutError:
                return

    def _take(self) -> list[_Waiting]:
        """The oldest request and those that go with it, as many as fit."""
        while self._waiting and self._waiting[0].future.done():  # given up
            self._waiting.popleft()
        if not self._waiting:
            return []
        kind, rows, batch, others = self._waiting[0].kind, 0, [], deque()
        for item in self._waiting:
            if item.future.done():
                continue
            if item.kind == kind and (not batch or rows + item.rows <= self.most):
                batch.append(item)
                rows += item.rows
            else:
                others.append(item)
        self._waiting = others
        self._queued = sum(item.rows for item in others)
        return batch

    async def _call(self, batch: list[_Waiting]):
        loop = asyncio.get_running_loop()
        joined = {
            name: np.concatenate([item.arrays[name] for item in batch]) if len(batch) > 1 else a
            for name, a in batch[0].arrays.items()
        }
        self._last = sum(item.rows for item in batch)
        self._observe(self._last)
        try:
            made = await loop.run_in_executor(self._thread, self._run, joined)
        except Exception as error:
            if len(batch) > 1:  # what is wrong with one request must not fail the others
                half = len(batch) // 2
                await self._call(batch[:half])
                await self._call(batch[half:])
            elif not batch[0].future.done():
                batch[0].future.set_exception(error)
            return
        start = 0
        for item in batch:
            end = start + item.rows
            if not item.future.done():
                whole = len(batch) == 1
                item.future.set_result({name: a if whole else a[start:end] for name, a in made.items()})
            start = end
