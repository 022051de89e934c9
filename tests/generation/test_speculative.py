"""Drafts that a larger model checks."""

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


def test_a_draft_changes_nothing_about_greedy_results(model):
    td.manual_seed(3)
    draft = td.models.GPT2(vocabulary=23, context=40, layers=1, heads=1, width=8).eval()
    expected = [greedy(model, p, 9) for p in PROMPTS]
    assert model.generate(PROMPTS, 9, temperature=0, draft=draft, draft_count=3) == expected
    assert model.generate(PROMPTS[:1], 9, temperature=0, draft=model) == expected[:1]


def test_a_draft_changes_nothing_about_how_tokens_are_distributed():
    td.manual_seed(0)
    large, small = (td.models.GPT2(vocabulary=3, context=16, layers=1, heads=1, width=4).eval() for _ in range(2))
    for m in (large, small):
        td.nn.init.normal_(m.wte.weight, 0.0, 1.0)
    with td.no_grad():
        expected = large(td.tensor([[1]]))[0, -1].softmax(-1).numpy()
    generator = td.Generator().manual_seed(0)
    found = [large.generate([[1]], 1, draft=small, draft_count=1, generator=generator)[0][1] for _ in range(400)]
    shares = np.bincount(found, minlength=3) / len(found)
    assert np.abs(shares - expected).max() < 0.09  # over three standard deviations
