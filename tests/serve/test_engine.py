"""Sequences that are decoded together."""

from __future__ import annotations

import asyncio

import pytest

from tandem.generation import Sampling
from tandem.serve import Engine
from tests.serve.client import ask, text_model, together
from tests.serve.prompts import served


@pytest.fixture(scope="module")
def model():
    return text_model()


PROMPTS = [[1 + i % 29, 3, i % 7][: 1 + i % 3] for i in range(12)]


def complete(app, prompt, **settings):
    return ask(app, "POST", "/v1/completions", {"model": "words", "prompt": prompt, "temperature": 0, **settings})


def test_prompts_that_come_together_give_what_each_gives_alone(model):
    """Also where the cache has room for a few of them only, so that some must wait or go back."""
    expected = [model.generate([p], 10, temperature=0)[0][len(p) :] for p in PROMPTS]
    for limits in ({"rows": 16}, {"rows": 5, "blocks": 4}):
        app = served(model, **limits)
        answers = together(*(complete(app, p, max_tokens=10) for p in PROMPTS))
        assert [a.json()["choices"][0]["text"] for a in answers] == [" ".join(map(str, e)) for e in expected]
        usage = answers[1].json()["usage"]
        assert usage == {"prompt_tokens": 2, "completion_tokens": 10, "total_tokens": 12}
        engine = app.store.get("words").engine
        assert engine.cache.pool.free == engine.cache.pool.blocks - 1 and not engine.running
        if limits["rows"] == 16:
            assert engine.steps < 60, "a hundred tokens are a few steps"


def test_prompts_beyond_the_queue_are_refused_and_a_client_that_leaves_frees_its_blocks(model):
    async def run():
        engine = Engine(model, rows=1, limit=2)
        first = engine.submit([1], 40, Sampling(0))
        reading = first.__aiter__()
        await anext(reading)
        second, third = (engine.submit([2], 3, Sampling(0)) for _ in range(2))
        with pytest.raises(Exception, match="2 prompts are waiting; try again later"):
            engine.submit([2], 3, Sampling(0))
        await reading.aclose()  # the client has gone
        made = [[t async for t in s] for s in (second, third)]
        engine.close()
        return engine, made

    engine, made = asyncio.run(run())
    assert made[0] == made[1] == model.generate([[2]], 3, temperature=0)[0][1:]
    assert engine.cache.pool.free == engine.cache.pool.blocks - 1


def test_an_error_in_a_step_reaches_those_in_it_and_others_go_on(model):
    app = served(model)
    engine = app.store.get("words").engine
    step = engine._step
    engine._step = lambda *args: (_ for _ in ()).throw(RuntimeError("broken"))
    (failed,) = together(complete(app, [1], max_tokens=3))
    engine._step = step
    (answer,) = together(complete(app, [1], max_tokens=3))
    assert failed.status == 500 and "broken" not in failed.json()["error"] and answer.status == 200
