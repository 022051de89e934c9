"""A model, a cache, and the step that both take together, as one compiled program."""

from __future__ import annotations

import numbers

import tandem as td
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.generation.cache import Cache, StaticCache, window
from tandem.generation.sampling import Sampling
from tandem.generation.step import Step, step_of
from tandem.ops.prepare import show_shape


class Decoder:
    """lengths: tokens so far, per row."""

    def __init__(self, model, cache: Cache):
        self.model, self.cache = model, cache
        self.step: Step = step_of(model)
        self.device = next(iter(model.parameters())).device  # tokens and positions are made there
        self.lengths: list[int] = []
        self._positions = None  # of the next token of each row, where the device knows them already

    @property
    def ahead(self) -> bool:
        """Whether a step is begun before the host has read the tokens of the last."""
        return self.device.type != "cpu"

    @classmethod
    def static(cls, model, batch: int, length: int) -> Decoder:
        layers, heads, width = model.cache_sizes
        length = window(length) + 1  # a step never sees all slots, which would be a program of its own
        parameter = next(iter(model.parameters()))
        return cls(model, StaticCache(layers, batch, heads, length, width, parameter.dtype, parameter.device))

    def prefill(self, prompts: list[list[int]]):
        """Takes in prompts of any lengths, from position 0; scores (n, vocabulary) of what follows each."""
        self.lengths, self._positions = [len(p) for p in prompts], None
        longest = max(self.lengths)
        tokens = td.tensor([list(p) + [0] * (longest - len(p)) for p in prompts], device=self.device)
        positions = td.arange(longest, device=self.device).expand(len(prompts), longest)
        even = min(self.lengths) == longest
        which = -1 if even else td.tensor(self.lengths, device=self.device) - 1
        return self.step.scores(self.cache, tokens, positions, longest, which)

    def extend(self, tokens, everything: bool = False):
        """Takes in t more tokens of every row, (n, t); scores (n, vocabulary) of what follows, or (n, t, vocabulary) of all."""
        positions = self._take(tokens.shape[1])
        seen = window(max(self.lengths))
        return self.step.scores(self.cache, tokens.to(self.device), positions, seen, None if everything else -1)

    def advance(self, tokens, sampling: Sampling, generator=None):
        """Takes in one more token of every row, (n, 1); gives the next ones, chosen on the device, (n, 1)."""
        positions = self._take(1)
        chosen, self._positions = self.step.choose(
            self.cache, tokens, positions, window(max(self.lengths)), sampling, generator
        )
        return chosen

    def _take(self, count: int):
        """The positions of so many more tokens of every row."""
        positions, self._positions = self._positions, None
        if positions is None or count > 1:
            positions = td.tensor([[n + i for i in range(count)] for n in self.lengths], device=self.device)
        self.lengths = [n + count for n in self.lengths]
        return positions

    def rewind(self, lengths: list[int]):
        """Goes back to shorter sequences; later slots are not looked at."""
        self.lengths, self._positions = list(lengths), None


class Reading:
    """Tokens (n, 1) on their way to the host: what is begun after this does not keep them waiting."""

    def __init__(self, tokens):
        self._host, self._arrived = tokens, None
        if tokens.device.type == "cuda":
            self._host = tokens.cpu(non_blocking=True)
            self._arrived = td.cuda.Event(device=tokens.device)
            self._arrived.record(td.cuda.current_stream(tokens.device))

    def tokens(self) -> list[int]:
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._host[:, 0].tolist()


def as_prompts(tokens) -> list[list[int]]:
    """(n, t) tensors and lists of lists or tensors of any lengths, as lists."""
    if hasattr(tokens, "ndim") and tokens.ndim != 2:
        raise ShapeError("generate", f"tokens is {show_shape(tokens.shape)}; it must be (n, t), a row for each prompt",
                         fix="a single prompt is tokens[None]")  # fmt: skip
    prompts = [row.tolist() if hasattr(row, "tolist") else row for row in tokens]
    for row in prompts:
        if not isinstance(row, (list, tuple)) or not all(isinstance(t, numbers.Integral) for t in row):
            raise DTypeError("generate", f"a prompt is {row!r:.60}; prompts are rows of whole numbers, the tokens",
                             fix="encode text with a tokenizer first; a single prompt is [tokens]")  # fmt: skip
    if not prompts or not all(prompts):
        raise ShapeError("generate", "every prompt must have at least one token")
    return [[int(t) for t in row] for row in prompts]


def as_stops(stop) -> frozenset[int]:
    """A token, several, or none, after which a sequence ends."""
    given = () if stop is None else (stop,) if isinstance(stop, (int, str)) else tuple(stop)
    if not all(isinstance(t, numbers.Integral) for t in given):
        raise DTypeError("generate", f"stop is {stop!r:.60}; it must be a token or several, which are whole numbers")
    return frozenset(int(t) for t in given)


def check_count(count: int, name: str = "count", least: int = 0):
    if not isinstance(count, numbers.Integral):
        raise DTypeError("generate", f"{name} is {count!r}; it must be a whole number")
    if count < least:
        raise ValueRangeError("generate", f"{name} is {count}; it must be {least} or more")
