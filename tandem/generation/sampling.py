"""How the next token is chosen from scores."""

from __future__ import annotations

from dataclasses import dataclass

import tandem as td
from tandem.errors import ValueRangeError


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
        if self.top_k is not None and self.top_k < 1:
            raise ValueRangeError("generate", f"top_k is {self.top_k}; at least one token must be left")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueRangeError("generate", f"top_p is {self.top_p}; it must be above 0 and at most 1")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0 or self.top_k == 1

    def probabilities(self, scores):
        """(n, vocabulary) scores -> what is sampled from."""
        if self.greedy:
            return td.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores.dtype)
        scores = scores / self.temperature
        if self.top_k is not None and self.top_k < scores.shape[-1]:
            least = scores.topk(self.top_k, -1)[0][..., -1:]
            scores = td.where(scores < least, -float("inf"), scores)
        made = scores.softmax(-1)
        if self.top_p is None or self.top_p == 1:
            return made
        ordered, order = made.sort(-1, descending=True)
        before = ordered.cumsum(-1) - ordered  # of likelier tokens: the first always stays
        kept = td.where(before < self.top_p, ordered, 0.0)
        made = td.zeros_like(made).scatter(-1, order, kept)
        return made / made.sum(-1, keepdim=True)

    def choose(self, scores, generator=None):
        """(n, vocabulary) scores -> (n, 1) tokens."""
        if self.greedy:
            return scores.argmax(-1, keepdim=True)
        return td.multinomial(self.probabilities(scores), 1, generator=generator)
