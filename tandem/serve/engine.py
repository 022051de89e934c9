"""Continuous batching: sequences join and leave the batch of a language model at every step.

Note [Continuous batching]
One thread runs the model. Before every step it takes in requests that wait, as long as there are rows and blocks for them:
their prompts are one step, padded at their ends. Then all running sequences get one token. A sequence that finds no free block
when it grows goes back to the head of the queue with what it has so far, and the youngest go first; its tokens are computed
again later. So a full cache slows sequences down, but loses none.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import deque

import tandem as td
from tandem.generation import PagedCache, Sampling
from tandem.generation.cache import window
from tandem.generation.step import step_of
from tandem.serve.errors import invalid, overloaded

_END = object()


class Sequence:
    """A request on its way: an asynchronous iterator of its tokens."""

    def __init__(
        self, number: int, prompt: list[int], count: int, sampling: Sampling, stops: frozenset, seed: int | None
    ):
        self.number, self.tokens, self.start = number, list(prompt), len(prompt)
        self.end, self.sampling, self.stops = len(prompt) + count, sampling, stops
        self.generator = None if seed is None else td.Generator().manual_seed(seed)
        self.seen = 0  # tokens that the cache holds
        self.cancelled = False
        self._loop, self._queue = asyncio.get_running_loop(), asyncio.Queue()

    def put(self, item):
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError:  # the client's loop has ended
            self.cancelled = True

    async def __aiter__(self):
        try:
            while (item := await self._queue.get()) is not _END:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.cancelled = True  # whoever stops reading wants no more


class Engine:
    """model: a language model (td.generation). rows: sequences at a time; blocks of `size` tokens: the cache they share."""

    def __init__(self, model, rows: int = 16, blocks: int | None = None, size: int = 16, limit: int = 256):
        layers, heads, width = model.cache_sizes
        blocks = blocks or 1 + rows * -(-model.context // size)
        parameter = next(iter(model.parameters()))
        self.model, self.rows, self.limit, self.device = model, rows, limit, parameter.device
        self.cache = PagedCache(layers, heads, width, blocks, size, parameter.dtype, parameter.device)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.steps = 0
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

    def submit(
        self, prompt: list[int], count: int, sampling: Sampling, stops=frozenset(), seed: int | None = None
    ) -> Sequence:
        """Has a prompt go on; iterate over what comes back, in a coroutine."""
        vocabulary = self.model.vocabulary
        if not prompt:
            raise invalid("the prompt has no tokens")
        if any(not 0 <= t < vocabulary for t in prompt):
            raise invalid(f"tokens of the prompt must be from 0 to {vocabulary - 1}")
        most = min(self.model.context, self.cache.length)
        if len(prompt) + count > most:
            raise invalid(f"{len(prompt)} tokens of the prompt and {count} more are over the limit of {most}")
        with self._changed:
            if self._closing:
                raise overloaded("the model is being replaced or the server stops")
            if len(self.waiting) >= self.limit:
                raise overloaded(f"{len(self.waiting)} prompts are waiting")
            made = Sequence(next(self._numbers), prompt, count, sampling, frozenset(stops), seed)
            self.waiting.append(made)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tandem-engine", daemon=True)
                self._thread.start()
            self._changed.notify()
        return made

    def close(self):
        """Lets what was taken in finish."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    # -- the thread

    def _run(self):
        while True:
            with self._changed:
                while not (self.waiting or self.running or self._closing):
                    self._changed.wait()
                if not (self.waiting or self.running):
                    return
            try:
                self._drop_cancelled()
                self._admit()
                if self.running:
                    self._decode()
            except Exception as error:
                self._fail(error)

    def _fail(self, error: Exception):
        """A step went wrong: those in it get the error, others go on."""
        for s in self.running:
            s.put(error)
            self.cache.pool.release(s.number)
        self.running = []

    def _drop_cancelled(self):
        for s in [s for s in self.running if s.cancelled]:
            self._leave(s)
        with self._changed:
            self.waiting = deque(s for s in self.waiting if not s.cancelled)

    def _leave(self, s: Sequence):
        self.running.remove(s)
        self.cache.pool.release(s.number)

    def _admit(self):
        """Takes in prompts while there is room for them and for one token of everybody."""
        joining = []
        with self._changed:
            while self.waiting and len(self.running) + len(joining) < self.rows:
                s, pool = self.waiting[0], self.cache.pool
                if pool.needed(s.number, len(s.tokens) + 1) > pool.free - (
                    len(self.running) if joining or self.running else 0
                ):
                    break
                pool.grow(s.number, len(s.tokens) + 1)
                joining.append(self.waiting.popleft())
        if not joining:
            return
        self.running += joining
        longest = max(len(s.tokens) for s in joining)
        scores = self._step(joining, [s.tokens for s in joining], [0] * len(joining), longest)
        self._give(joining, scores)

    def _decode(self):
        for s in sorted(self.running, key=lambda s: s.number):  # the oldest first
            while s in self.running and not self.cache.pool.grow(s.number, len(s.tokens)):
                self._put_back(max(self.running, key=lambda s: s.number))
        if self.running:
            rows = list(self.running)
            scores = self._step(rows, [s.tokens[-1:] for s in rows], [s.seen for s in rows], 1)
            self._give(rows, scores)

    def _put_back(self, s: Sequence):
        self._leave(s)
        s.seen = 0
        with self._changed:
            self.waiting.appendleft(s)

    def _step(self, rows: list[Sequence], tokens: list, starts: list[int], width: int):
        """Scores of what follows the last token of each row."""
        numbers: list = [s.number for s in rows]
        if len(rows) == 1:  # one row would be a program of its own; the second is nobody's
            numbers, tokens, starts = [*numbers, None], [*tokens, [0]], [*starts, 0]
        seen = window(max(starts) + 1) if width == 1 else max(starts) + width
        self.cache.select(numbers, seen)
        padded = td.tensor([t + [0] * (width - len(t)) for t in tokens], device=self.device)
        positions = td.tensor([[n + i for i in range(width)] for n in starts], device=self.device)
        which = -1 if width == 1 else td.tensor([len(t) - 1 for t in tokens], device=self.device)
        with td.no_grad():
            scores = step_of(self.model).scores(self.cache, padded, positions, seen, which)
        for s, t in zip(rows, tokens, strict=False):
            s.seen += len(t)
        self.steps += 1
        return scores

    def _give(self, rows: list[Sequence], scores):
        likeliest = scores.argmax(-1).tolist()
        for i, s in enumerate(rows):
            token = likeliest[i] if s.sampling.greedy else int(s.sampling.choose(scores[i : i + 1], s.generator))
            s.tokens.append(token)
            ends = token in s.stops or len(s.tokens) >= s.end
            if ends:  # before anybody hears of it
                self._leave(s)
            s.put(token)
            if ends:
                s.put(_END)
