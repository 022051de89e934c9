"""Tokens that go on from prompts: the same with every cache, for every batch, and from one compiled step."""

from __future__ import annotations

import copy
import gc
import re
import weakref

import pytest

import tandem as td
from tandem.errors import ShapeError, ValueRangeError
from tandem.generation import Decoder
from tandem.generation.step import step_of
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
    for text, error, tokens, options in [
        (r"tokens is \(2,\); it must be \(n, t\)", ShapeError, td.tensor([1, 2]), {}),
        (r"tokens is \(1, 1, 2\)", ShapeError, td.ones(1, 1, 2, dtype=td.int64), {}),
        (r"a prompt is \[1.5", td.DTypeError, td.tensor([[1.5, 2.0]]), {}),
        ("a prompt is 'ab'", td.DTypeError, ["ab"], {}),
        ("a prompt is 1; prompts are rows", td.DTypeError, [1, 2], {}),
        ("stop is 'a'", td.DTypeError, [[1]], {"stop": "a"}),
        ("beams is 0; it must be 1 or more", ValueRangeError, [[1]], {"beams": 0}),
        ("beams is 1.5; it must be a whole number", td.DTypeError, [[1]], {"beams": 1.5}),
        ("count is 2.5", td.DTypeError, [[1]], {"count": 2.5}),
        ("top_k is 1.5", td.DTypeError, [[1]], {"top_k": 1.5}),
    ]:
        with pytest.raises(error, match=text):
            model.generate(tokens, **{"count": 3, **options})


@pytest.mark.parametrize("cache", ["static", "paged"])
def test_steps_that_come_again_are_replayed_with_the_same_results(model, cache):
    expected = [greedy(model, p, 24) for p in PROMPTS]
    assert [model.generate(PROMPTS, 24, temperature=0, cache=cache) for _ in range(3)] == [expected] * 3
    assert replays(model) > 20
    seeded = lambda: td.Generator().manual_seed(3)
    once = model.generate(PROMPTS, 24, top_k=5, cache=cache, generator=seeded())
    assert all(model.generate(PROMPTS, 24, top_k=5, cache=cache, generator=seeded()) == once for _ in range(3))
    with td.no_grad():
        model.lm_head.weight.neg_()
    try:
        changed = [greedy(model, p, 24) for p in PROMPTS]
        assert changed != expected and model.generate(PROMPTS, 24, temperature=0, cache=cache) == changed
    finally:
        with td.no_grad():
            model.lm_head.weight.neg_()


def test_a_step_that_begins_before_the_last_was_read_gives_the_same_tokens(model, monkeypatch):
    stop = model.generate(PROMPTS, 12, temperature=0)[0][9]
    settings = {"temperature": 0, "stop": stop, "cache": "paged"}
    expected = model.generate(PROMPTS, 12, **settings)
    monkeypatch.setattr(Decoder, "ahead", True)
    assert model.generate(PROMPTS, 12, **settings) == expected
    assert model.generate([[1, 2, 3]], 45, temperature=0)[0][:40] == greedy(model, [1, 2, 3], 37)


def test_a_model_that_nobody_holds_goes_with_its_steps():
    model = td.models.GPT2(vocabulary=9, context=64, layers=1, heads=1, width=8).eval()
    for _ in range(3):
        model.generate([[1]], 24, temperature=0)
    assert replays(model) > 0
    copied = copy.deepcopy(model)
    assert step_of(copied) is not step_of(model) and replays(copied) == 0
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_model_that_counts_is_never_replayed():
    class Counts(td.models.GPT2):
        steps = 0

        def hidden(self, tokens, cache=None):
            self.steps += 1
            return super().hidden(tokens, cache)

    model = Counts(vocabulary=9, context=64, layers=1, heads=1, width=8).eval()
    expected = greedy(model, [1], 24)
    for _ in range(3):
        model.steps = 0
        assert model.generate([[1]], 24, temperature=0) == [expected]
        assert 24 <= model.steps <= 25  # one was run again, to find out
    assert replays(model) == 0


def replays(model) -> int:
    return sum(int(n) for n in re.findall(r"replayed (\d+) times", step_of(model).explain()))
