"""Tokens that go on from prompts: the same with every cache, for every batch, and from one compiled step."""

from __future__ import annotations

import numpy as np
import pytest

import tandem as td
from tandem.errors import ShapeError, ValueRangeError
from tandem.generation.decoder import step_of


@pytest.fixture(scope="module")
def model():
    td.manual_seed(1)
    made = td.models.Llama(vocabulary=23, context=40, layers=2, heads=4, kv_heads=2, width=16, hidden=24).eval()
    for p in made.parameters():
        if p.ndim == 2:
            td.nn.init.normal_(p, 0.0, 0.4)
    return made


def greedy(model, prompt: list, count: int) -> list[int]:
    """Without a cache: the whole sequence at every step."""
    made = list(prompt)
    with td.no_grad():
        for _ in range(count):
            made.append(int(model(td.tensor([made]))[0, -1].argmax()))
    return made


PROMPTS = [[3, 1, 4, 1, 5], [9], [2, 6]]


def test_prompts_of_different_lengths_give_what_each_gives_alone(model):
    expected = [greedy(model, p, 6) for p in PROMPTS]
    assert model.generate(PROMPTS, 6, temperature=0) == expected
    assert model.generate(PROMPTS, 6, temperature=0, cache="paged") == expected
    rows = [*zip(*model.stream(PROMPTS, 6, temperature=0), strict=True)]
    assert [[*p, *row] for p, row in zip(PROMPTS, rows, strict=True)] == expected


def test_decoding_compiles_nothing_after_the_first_tokens(model):
    for cache in ("static", "paged"):
        steps = model.stream(PROMPTS, 34, temperature=0, cache=cache)
        for _ in range(5):
            next(steps)
        before = step_of(model).explain().count("\n  program ")
        assert sum(1 for _ in steps) == 29
        more = step_of(model).explain().count("\n  program ") - before
        assert more <= (0 if cache == "static" else 2)  # a second block; as many blocks as there are prompts


def test_a_stop_token_ends_a_sequence_and_its_row_is_padded(model):
    free = model.generate(td.tensor([PROMPTS[0]] * 2), 8, temperature=0)
    stop = int(free[0, 8])
    end = free[0, 5:].tolist().index(stop) + 6
    ended = model.generate(td.tensor([PROMPTS[0]] * 2), 8, temperature=0, stop=stop, pad=-1)
    assert ended[0].tolist() == free[0, :end].tolist() + [-1] * (13 - end)
    assert model.generate([PROMPTS[0]], 8, temperature=0, stop=[stop, 99])[0] == free[0, :end].tolist()


def test_a_sequence_longer_than_the_context_goes_on_from_its_end(model):
    made = model.generate([[1, 2, 3]], 45, temperature=0)[0]
    assert len(made) == 48 and made[:40] == greedy(model, [1, 2, 3], 37)
    assert made[41] == greedy(model, made[41 - 21 : 41], 1)[-1]


def test_sampling_is_reproducible_and_keeps_to_its_limits(model):
    seeded = lambda: td.Generator().manual_seed(7)
    first = model.generate(PROMPTS, 6, top_p=0.9, generator=seeded())
    assert model.generate(PROMPTS, 6, top_p=0.9, generator=seeded()) == first
    assert model.generate(PROMPTS, 4, top_k=1) == model.generate(PROMPTS, 4, temperature=0)


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


def test_mistakes_are_named(model):
    with pytest.raises(ShapeError, match="every prompt must have at least one token"):
        model.generate([[1], []], 3)
    for settings, text in (
        ({"temperature": -1.0}, "temperature is -1.0"), ({"top_k": 0}, "top_k is 0"), ({"top_p": 0.0}, "top_p is 0.0"),
        ({"cache": "disk"}, "cache is 'disk'"), ({"beams": 2, "count": 50}, "do not fit into the context of 40"),
        ({"count": -1}, "count is -1"), ({"draft": model, "draft_count": 0}, "draft_count is 0"),
    ):  # fmt: skip
        with pytest.raises(ValueRangeError, match=text):
            model.generate([[1]], settings.pop("count", 3), **settings)
