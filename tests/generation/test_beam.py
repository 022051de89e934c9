"""Beams of sequences."""

from __future__ import annotations

import numpy as np
import pytest

import tandem as td
from tests.generation.models import greedy


@pytest.fixture(scope="module")
def model():
    td.manual_seed(1)
    made = td.models.Llama(vocabulary=23, context=40, layers=2, heads=4, kv_heads=2, width=16, hidden=24).eval()
    for p in made.parameters():
        if p.ndim == 2:
            td.nn.init.normal_(p, 0.0, 0.4)
    return made


PROMPTS = [[3, 1, 4, 1, 5], [9], [2, 6]]


def test_beams_find_a_likelier_sequence(model):
    def mean(sequence):
        with td.no_grad():
            logs = model(td.tensor([sequence])).log_softmax(-1)[0]
        return np.mean([float(logs[i, t]) for i, t in enumerate(sequence[1:]) if i + 1 >= 5])

    best = model.generate([PROMPTS[0]], 5, beams=6)[0]
    assert mean(best) >= mean(greedy(model, PROMPTS[0], 5))
    assert model.generate(PROMPTS, 5, beams=6)[0] == best


def test_every_sequence_is_followed_by_beams_enough(model):
    """With as many beams as there are sequences, the result is the likeliest of all."""
    small = td.models.GPT2(vocabulary=4, context=8, layers=1, heads=1, width=8).eval()
    td.nn.init.normal_(small.wte.weight, 0.0, 2.0)
    with td.no_grad():
        every = [[1, a, b, c] for a in range(4) for b in range(4) for c in range(4)]
        logs = small(td.tensor(every)).log_softmax(-1)
        sums = [sum(float(logs[i, t, s[t + 1]]) for t in range(3)) for i, s in enumerate(every)]
    assert small.generate([[1]], 3, beams=16)[0] == every[int(np.argmax(sums))]
