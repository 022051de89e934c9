"""Models of a server."""

from __future__ import annotations

import asyncio

import pytest

import tandem as td
from tandem.serve import App, ModelStore
from tandem.serve.store import TensorModel
from tests.serve.client import ask, saved, together
from tests.serve.requests import question, served


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return td.export.load(saved(tmp_path_factory.mktemp("models") / "toy.model"))


INFER = "/v2/models/toy/infer"


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
        files = ("../etc", "bad.model", "none", "a\0b")
        refused = [await ask(app, "POST", load, {"parameters": p}) for p in (*({"file": f} for f in files), [3])]
        described = await ask(app, "GET", "/v2/models/toy")
        await ask(app, "POST", "/v2/repository/models/toy/unload", {})
        return await before, after, old, refused, described, await ask(app, "GET", "/v2/models/toy")

    before, after, old, refused, described, gone = asyncio.run(swap())
    sums = [next(o for o in a.json()["outputs"] if o["name"] == "sum")["data"] for a in (*before, old, after)]
    assert sums == [[float(i)] for i in range(20)] + [[1.0], [101.0]]
    assert [a.status for a in refused] == [400] * 5 and "no model of the repository" in refused[0].json()["error"]
    assert described.json()["versions"] == ["1", "2"] and gone.status == 404
    (forbidden,) = together(ask(served(), "POST", load, {}))
    assert forbidden.status == 403


def test_models_that_take_no_zeros_or_short_inputs_are_served(tmp_path):
    td.export.save(lambda a, b: a // b, (td.tensor([4]), td.tensor([2])), tmp_path / "m", input_names=["a", "b"])
    kernel = td.ones(3, 3, 5)
    td.export.save(
        lambda x: td.nn.functional.conv1d(x, kernel), td.ones(2, 3, 9), tmp_path / "c", dynamic={"x": (0, 2)}
    )
    store = ModelStore()
    store.load("divide", tmp_path / "m")
    store.load("convolve", tmp_path / "c")
    given = {"a": [9, -7], "b": [2, 2]}
    request = {"inputs": [{"name": n, "shape": [2], "datatype": "INT64", "data": v} for n, v in given.items()]}
    (answer,) = together(ask(App(store), "POST", "/v2/models/divide/infer", request))
    assert [4, -4] == answer.json()["outputs"][0]["data"]


def test_a_model_is_there_all_the_time_that_another_takes_its_place(model):
    """A thread loads while requests are answered: what they look at is never half made."""
    store = ModelStore()
    first = store.add("toy", model)
    seen = store._models["toy"]
    second = store.add("toy", model)
    assert list(seen.values()) == [first] and store.get("toy") is second


def test_of_two_that_replace_a_model_at_once_one_stays_and_each_other_is_drained_once(tmp_path, monkeypatch):
    saved(tmp_path / "one.model")
    store, closed = ModelStore(repository=tmp_path), []
    close = TensorModel.close

    async def counted(self):
        closed.append(self)
        await close(self)

    monkeypatch.setattr(TensorModel, "close", counted)

    async def swaps():
        await store.swap("toy", "one.model", "1")
        made = [store.get("toy")]
        add = store.add
        monkeypatch.setattr(store, "add", lambda *args: made.append(add(*args)) or made[-1])
        await asyncio.gather(*(store.swap("toy", "one.model", "1") for _ in range(3)))
        return made

    made = asyncio.run(swaps())
    assert len(made) == 4 and closed == made[:3] and store.get("toy") is made[3]


def test_errors_of_loading_show_no_folders_of_the_server(tmp_path):
    (tmp_path / "bad.model").write_bytes(b"nothing")
    (tmp_path / "bad.gguf").write_bytes(b"nothing")
    (tmp_path / "folder").mkdir()
    app = App(ModelStore(repository=tmp_path))
    files = ("bad.model", "bad.gguf", "folder", "x" * 5000)
    load = "/v2/repository/models/toy/load"
    answers = together(*(ask(app, "POST", load, {"parameters": {"file": f}}) for f in files))
    assert [a.status for a in answers] == [400] * 4
    for file, answer in zip(files, answers, strict=True):
        text = answer.json()["error"]
        assert file[:50] in text and str(tmp_path) not in text and ".py" not in text
    assert "'bad.model' is damaged: it has 7 bytes" in answers[0].json()["error"]


def test_errors_of_models_show_no_lines_of_the_server(tmp_path):
    weight = td.randn(10, 2)
    td.export.save(lambda i: weight[i], td.tensor([1]), tmp_path / "m", input_names=["i"], output_names=["y"])
    app = served(td.export.load(tmp_path / "m"))
    body = {"inputs": [{"name": "i", "shape": [1], "datatype": "INT64", "data": [99]}]}
    (answer,) = together(ask(app, "POST", INFER, body))
    text = answer.json()["error"]
    assert answer.status == 400 and "index 99 is out of range for axis 0 with size 10" in text and ".py" not in text
