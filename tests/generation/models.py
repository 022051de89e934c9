"""Decoding without a cache."""

from __future__ import annotations

import tandem as td


def greedy(model, prompt: list, count: int) -> list[int]:
    """Without a cache: the whole sequence at every step."""
    made = list(prompt)
    with td.no_grad():
        for _ in range(count):
            made.append(int(model(td.tensor([made]))[0, -1].argmax()))
    return made
