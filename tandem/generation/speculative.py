"""Speculative decoding (Leviathan et al., 2023): a small model guesses, the large one checks all guesses in one step.

A guess x with probability q(x) is kept with probability min(1, p(x) / q(x)); the first that is not is replaced by one sampled from
what p has above q. So tokens are distributed as if the large model alone had been sampled, and greedy results are its own.
"""

from __future__ import annotations

import numpy as np

import tandem as td
from tandem.errors import ValueRangeError
from tandem.generation.decoder import Decoder
from tandem.generation.sampling import Sampling


def speculate(
    model, draft, prompts: list, count: int, sampling: Sampling, stops, guesses: int, generator=None
) -> list[list[int]]:
    """Each prompt with up to `count` more tokens of `model`, of which `draft` guesses `guesses` at a time."""
    if guesses < 1:
        raise ValueRangeError("generate", f"draft_count is {guesses}; it must be at least 1")
    longest = max(map(len, prompts)) + count + guesses + 1
    context = min(model.context, draft.context)
    if longest > context:
        raise ValueRangeError(
            "generate", f"prompts, {count} more tokens and {guesses} guesses do not fit into {context} tokens"
        )
    return [_one(model, draft, p, count, sampling, stops, guesses, generator) for p in prompts]


def _one(model, draft, prompt: list, count: int, sampling: Sampling, stops, guesses: int, generator) -> list[int]:
    # Both have taken in all tokens but the last one.
    made, end = list(prompt), len(prompt) + count
    large, small = (Decoder.static(m, 1, end + guesses + 1) for m in (model, draft))
    if len(made) > 1:
        for decoder in (large, small):
            decoder.prefill([made[:-1]])
    else:
        for decoder in (large, small):
            decoder.lengths = [0]
    while len(made) < end:
        guessed, chances = _guess(small, made, guesses, sampling, generator)
        scores = large.extend(td.tensor([[made[-1], *guessed]]), everything=True)[0]
        wanted = sampling.probabilities(scores).cpu().numpy()
        kept = _kept(guessed, chances, wanted, sampling, generator)
        for token in kept:
            made.append(token)
            if token in stops or len(made) == end:
                return made
        for decoder in (large, small):
            decoder.rewind([min(len(made) - 1, decoder.lengths[0])])
    return made


def _guess(small: Decoder, made: list, count: int, sampling: Sampling, generator) -> tuple[list[int], list[np.ndarray]]:
    guessed: list[int] = []
    chances = []
    scores = small.extend(td.tensor([made[small.lengths[0] :]]))
    for i in range(count):
        chances.append(sampling.probabilities(scores)[0].cpu().numpy())
        guessed.append(int(sampling.choose(scores, generator)))
        if i < count - 1:
            scores = small.extend(td.tensor([[guessed[-1]]]))
    return guessed, chances


def _kept(guessed: list, chances: list, wanted: np.ndarray, sampling: Sampling, generator) -> list[int]:
    """The guesses up to the first that is refused, and one token more."""
    kept: list[int] = []
    for token, q, p in zip(guessed, chances, wanted, strict=False):
        if sampling.greedy:
            if p[token] < 1:
                return [*kept, int(p.argmax())]
        elif float(td.rand((), generator=generator)) * q[token] >= p[token]:
            return [*kept, _sample(np.maximum(p - q, 0), generator)]
        kept.append(token)
    last = wanted[len(guessed)]
    return [*kept, int(last.argmax()) if sampling.greedy else _sample(last, generator)]


def _sample(weights: np.ndarray, generator) -> int:
    return int(td.multinomial(td.tensor(weights / weights.sum()), 1, generator=generator))
