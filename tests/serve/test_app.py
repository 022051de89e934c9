"""The server: answers belong to their questions, mistakes are named, too much is refused, and nothing is lost when it stops."""

from __future__ import annotations

import asyncio
import json
import struct
import threading

import numpy as np
import pytest

import tandem as td
from tandem.serve import App, Limits, ModelStore
from tests.serve.client import ask, saved, text_model, together


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return td.export.load(saved(tmp_path_factory.mktemp("models") / "toy.model"))


@pytest.fixture(scope="module")
def language():
    return text_model()


def served(model=None, **limits) -> App:
    store = ModelStore(Limits(**limits))
    if model is not None:
        store.add("toy", model)
    return App(store)


def question(x, scale) -> dict:
    x, scale = np.asarray(x, np.float32), np.asarray(scale, np.float32)
    return {"inputs": [
        {"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.reshape(-1).tolist()},
        {"name": "scale", "shape": list(scale.shape), "datatype": "FP32", "data": scale.tolist()},
    ]}  # fmt: skip


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


def test_binary_data_goes_in_and_comes_out(model):
    app = served(model)
    x, scale = np.ones((1, 3), np.float32), np.full((1, 1), 2, np.float32)
    head = {"inputs": [
        {"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12}},
        {"name": "scale", "shape": [1, 1], "datatype": "FP32", "parameters": {"binary_data_size": 4}},
    ], "parameters": {"binary_data_output": True},
    "outputs": [{"name": "product"}, {"name": "sum", "parameters": {"binary_data": False}}]}  # fmt: skip
    text = json.dumps(head).encode()
    body = text + x.tobytes() + scale.tobytes()
    (answer,) = together(ask(app, "POST", INFER, body, {"Inference-Header-Content-Length": len(text)}))
    length = int(answer.headers["inference-header-content-length"])
    assert struct.unpack("<2f", answer.body[length:]) == (18.0, 24.0)
    assert json.loads(answer.body[:length])["outputs"][1]["data"] == [3.0]


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


def test_mistakes_in_a_request_are_named(model):
    app = served(model)
    good = question([[1, 2, 3]], [[1]])

    def changed(**parts):
        return {"inputs": [{**good["inputs"][0], **parts}, good["inputs"][1]]}

    cases = [
        (b"{", 400, "the body is no JSON"), ([], 400, "must be a JSON object"), ({}, 400, '"inputs" must be a list'),
        (changed(name="y"), 400, "there is an input 'y'; toy takes ['scale', 'x'], each once"),
        (changed(datatype="INT64"), 400, "input 'x' is FP32; datatype 'INT64' was given"),
        (changed(shape=[1, 4]), 400, "input 'x' has shape [-1, 3], where -1 is any size; [1, 4] was given"),
        (changed(data=[1, 2]), 400, "data of input 'x' must be 3 numbers"),
        (changed(data=["a", "b", "c"]), 400, "data of input 'x' must be 3 numbers"),
        (changed(shape=[-1, 3]), 400, "has shape [-1, 3]"), ({"inputs": good["inputs"][:1]}, 400, "inputs ['scale'] are missing"),
        (changed(shape=[2, 3], data=[0] * 6), 400, "inputs have [1, 2] rows; all must have as many"),
        ({**good, "outputs": [{"name": "z"}]}, 400, "outputs ['z'] do not exist"),
        (changed(parameters={"binary_data_size": 5}), 400, "input 'x' has 12 bytes; binary_data_size is 5"),
    ]  # fmt: skip
    answers = together(*(ask(app, "POST", INFER, body) for body, _, _ in cases))
    for (body, status, text), answer in zip(cases, answers, strict=True):
        assert answer.status == status and text in answer.json()["error"], (body, answer.body)
    others = together(
        ask(app, "POST", "/v2/models/none/infer", good), ask(app, "POST", "/v2/models/toy/versions/9/infer", good),
        ask(app, "GET", "/nothing"), ask(app, "DELETE", INFER), ask(served(model, body=10), "POST", INFER, good),
        ask(app, "POST", INFER, good, {"Inference-Header-Content-Length": "99999"}),
        ask(app, "POST", "/v1/completions", {"model": "toy", "prompt": [1]}),
    )  # fmt: skip
    assert [a.status for a in others] == [404, 404, 404, 405, 413, 400, 400]
    assert others[0].json()["error"] == "there is no model 'none'; models are ['toy']"


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


def test_an_answer_that_takes_too_long_is_given_up(model):
    app = served(model, timeout=0.05)
    gate = threading.Event()
    app.store.get("toy").batcher._run = lambda arrays: gate.wait(10) and {}

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


def test_a_model_is_swapped_while_it_answers(tmp_path):
    saved(tmp_path / "one.model")
    saved(tmp_path / "two.model", lambda x, scale: {"product": x * scale, "sum": x.sum(1) + 100})
    (tmp_path / "bad.model").write_bytes(b"nothing")
    app = App(ModelStore(repository=tmp_path))
    load = "/v2/repository/models/toy/load"

    async def swap():
        assert (await ask(app, "GET", "/v2/health/ready")).status == 503
        await ask(app, "POST", load, {"parameters": {"file": "one.model"}})
        before = asyncio.gather(*(ask(app, "POST", INFER, question([[i, 0, 0]], [[1]])) for i in range(20)))
        await asyncio.sleep(0)
        await ask(app, "POST", load, {"parameters": {"file": "two.model", "version": "2"}})
        after = await ask(app, "POST", INFER, question([[1, 0, 0]], [[1]]))
        old = await ask(app, "POST", "/v2/models/toy/versions/1/infer", question([[1, 0, 0]], [[1]]))
        refused = [await ask(app, "POST", load, {"parameters": {"file": f}}) for f in ("../etc", "bad.model", "none")]
        described = await ask(app, "GET", "/v2/models/toy")
        await ask(app, "POST", "/v2/repository/models/toy/unload", {})
        return await before, after, old, refused, described, await ask(app, "GET", "/v2/models/toy")

    before, after, old, refused, described, gone = asyncio.run(swap())
    sums = [next(o for o in a.json()["outputs"] if o["name"] == "sum")["data"] for a in (*before, old, after)]
    assert sums == [[float(i)] for i in range(20)] + [[1.0], [101.0]]
    assert [a.status for a in refused] == [400] * 3 and "no model of the repository" in refused[0].json()["error"]
    assert described.json()["versions"] == ["1", "2"] and gone.status == 404
    (forbidden,) = together(ask(served(), "POST", load, {}))
    assert forbidden.status == 403


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
