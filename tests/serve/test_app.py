"""The server: answers belong to their questions, mistakes are named, too much is refused, and nothing is lost when it stops."""

from __future__ import annotations

import asyncio
import threading

import pytest

import tandem as td
from tests.serve.client import ask, saved, text_model, together
from tests.serve.requests import question, served


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return td.export.load(saved(tmp_path_factory.mktemp("models") / "toy.model"))


@pytest.fixture(scope="module")
def language():
    return text_model()


INFER = "/v2/models/toy/infer"


def test_an_answer_has_the_outputs_that_were_asked_for(model):
    app = served(model)
    x = [[1, 0, 0], [0, 1, 1]]
    asked = {**question(x, [[2], [1]]), "id": "7", "outputs": [{"name": "sum"}]}
    whole, some = together(ask(app, "POST", INFER, question(x, [[2], [1]])), ask(app, "POST", INFER, asked))
    found = {o["name"]: o for o in whole.json()["outputs"]}
    assert found["product"] == {"name": "product", "shape": [2, 2], "datatype": "FP32", "data": [2.0, 4.0, 8.0, 10.0]}
    assert some.json()["outputs"] == [{"name": "sum", "shape": [2], "datatype": "FP32", "data": [1.0, 2.0]}]
    assert some.json()["id"] == "7" and some.json()["model_version"] == "1"


def test_an_answer_that_takes_too_long_is_given_up(model):
    app = served(model, timeout=0.05)
    gate = threading.Event()
    app.store.get("toy").batcher._run = lambda arrays: gate.wait(300) and {}

    async def wait():
        answer = await ask(app, "POST", INFER, question([[1, 0, 0]], [[1]]))
        gate.set()
        return answer

    answer = asyncio.run(wait())
    assert answer.status == 504 and "within 0.05 s" in answer.json()["error"]


def test_a_server_that_stops_finishes_what_it_began(model):
    app = served(model, budget=0.05)

    async def stop():
        begun = asyncio.ensure_future(ask(app, "POST", INFER, question([[1, 1, 1]], [[1]])))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(app.close())
        await asyncio.sleep(0)
        late = await ask(app, "POST", INFER, question([[1, 1, 1]], [[1]]))
        ready = await ask(app, "GET", "/v2/health/ready")
        await closing
        return await begun, late, ready

    begun, late, ready = asyncio.run(stop())
    assert begun.status == 200 and late.status == 503 and ready.status == 503


def test_pages_say_what_there_is(model, language):
    app = served(model)
    app.store.add("<text>", language)
    page, metadata, models, health, metrics = together(*(
        ask(app, "GET", path) for path in ("/", "/v2/models/toy", "/v1/models", "/v2/health/live", "/metrics")
    ))  # fmt: skip
    assert b"&lt;text&gt;" in page.body and b"x: f32[-1, 3]" in page.body and b"<script" not in page.body
    assert metadata.json()["inputs"][0] == {"name": "x", "datatype": "FP32", "shape": [-1, 3]}
    assert [m["id"] for m in models.json()["data"]] == ["toy", "<text>"] and health.json() == {"live": True}
    assert (
        b'tandem_waiting{model="toy",version="1"} 0' in metrics.body
        and b"# TYPE tandem_requests_total counter" in metrics.body
    )
