"""Requests that go together."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

import tandem as td
from tests.serve.client import ask, saved, together
from tests.serve.requests import question, served


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return td.export.load(saved(tmp_path_factory.mktemp("models") / "toy.model"))


INFER = "/v2/models/toy/infer"


def test_requests_that_wait_go_together_and_each_gets_its_own_rows(model):
    app = served(model, budget=0.05, most=64)
    rng = np.random.default_rng(0)
    given = [(rng.integers(0, 9, (rows, 3)), rng.integers(1, 9, (rows, 1))) for rows in rng.integers(1, 4, 60)]
    answers = together(*(ask(app, "POST", INFER, question(x, s)) for x, s in given))
    w = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    for (x, scale), answer in zip(given, answers, strict=True):
        product = next(o for o in answer.json()["outputs"] if o["name"] == "product")
        np.testing.assert_array_equal(np.reshape(product["data"], product["shape"]), x @ w * scale)
    text = app.metrics.text()
    batches = int(text.split("tandem_batch_rows_count")[1].split()[1])
    assert 1 <= batches < 20, "sixty requests are a few batches"
    assert 'tandem_requests_total{code="200",kind="v2"} 60' in text


def test_what_does_not_fit_into_the_queue_is_refused_at_once(model):
    app = served(model, waiting=4, most=4, budget=0.0)
    gate = threading.Event()
    batcher = app.store.get("toy").batcher
    run = batcher._run
    batcher._run = lambda arrays: gate.wait(10) and run(arrays)

    async def crowd():
        first = [asyncio.ensure_future(ask(app, "POST", INFER, question([[i, 0, 0]], [[1]]))) for i in range(4)]
        await asyncio.sleep(0.01)
        refused = await ask(app, "POST", INFER, question([[9, 0, 0]], [[1]]))
        gate.set()
        return refused, await asyncio.gather(*first)

    refused, answers = asyncio.run(crowd())
    assert (
        refused.status == 429 and refused.headers["retry-after"] == "1" and "try again later" in refused.json()["error"]
    )
    assert [a.json()["outputs"][1]["data"] for a in answers] == [[0.0], [1.0], [2.0], [3.0]]
