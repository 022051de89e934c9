"""How the next token is chosen from scores."""

from __future__ import annotations

import numbers
from dataclasses import dataclass

import tandem as td
from tandem.errors import DTypeError, ValueRangeError

_LEAST = 2.0**-126  # lower temperatures are no normal numbers of float32


@dataclass(frozen=True)
class Sampling:
    """temperature: 0 takes the likeliest token, 1 samples as the model expects, more is bolder.

    top_k: only the k likeliest tokens; top_p: only the likeliest that together have this probability.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self):
        if not self.temperature >= 0:
            raise ValueRangeError("generate", f"temperature is {self.temperature}; it must be 0 or more")
        if self.top_k is not None and not isinstance(self.top_k, numbers.Integral):
            raise DTypeError("generate", f"top_k is {self.top_k!r}; it must be a whole number")
        if self.top_k is not None and self.top_k < 1:
            raise ValueRangeError("generate", f"top_k is {self.top_k}; at least one token must be left")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueRangeError("generate", f"top_p is {self.top_p}; it must be above 0 and at most 1")

    @property
    def settings(self) -> tuple:
        return self.temperature, self.top_k, self.top_p

    @property
    def greedy(self) -> bool:
        return _greedy(*self.settings)

    def probabilities(self, scores):
        """(n, vocabulary) scores -> what is sampled from."""
        return _probabilities(scores, *self.settings)

    def choose(self, scores, generator=None):
        """(n, vocabulary) scores -> (n, 1) tokens."""
        return choose(scores, self.settings, generator)


def choose(scores, settings: tuple, generator=None):
    """Sampling.choose, for code that is compiled and replayed: settings are plain values."""
    if _greedy(*settings):
        return scores.argmax(-1, keepdim=True)
    return td.multinomial(_probabilities(scores, *settings), 1, generator=generator)


def _greedy(temperature: float, top_k: int | None, top_p: float | None) -> bool:
    return temperature < _LEAST or top_k == 1


def _probabilities(scores, temperature: float, top_k: int | None, top_p: float | None):
    if _greedy(temperature, top_k, top_p):
        return td.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores.dtype)
    scores = (
        scores - scores.amax(-1, keepdims=True)
    ) / temperature  # which may be so low that the likeliest is infinite
    if top_k is not None and top_k < scores.shape[-1]:
        least = scores.topk(top_k, -1)[0][..., -1:]
        scores = td.where(scores < least, -float("inf"), scores)
    made = scores.softmax(-1)
    if top_p is None or top_p == 1:
        return made
    ordered, order = made.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered  # of likelier tokens: the first always stays
    kept = td.where(before < top_p, ordered, 0.0)
    made = td.zeros_like(made).scatter(-1, order, kept)
    return made / made.sum(-1, keepdim=True)
