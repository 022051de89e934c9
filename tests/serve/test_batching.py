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
    batcher._run = lambda arrays: gate.wait(300) and run(arrays)

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


def test_a_request_that_fails_takes_no_others_with_it(tmp_path):
    weight = td.randn(10, 2)
    td.export.save(
        lambda i: weight[i], td.tensor([1, 2]), tmp_path / "rows.model", input_names=["i"], output_names=["y"]
    )
    app = served(td.export.load(tmp_path / "rows.model"), budget=0.05, most=64)

    def request(i):
        return {"inputs": [{"name": "i", "shape": [1], "datatype": "INT64", "data": [i]}]}

    numbers = [99 if k % 7 == 3 else k % 10 for k in range(40)]
    answers = together(*(ask(app, "POST", INFER, request(i)) for i in numbers))
    assert [400 if i == 99 else 200 for i in numbers] == [a.status for a in answers]
    for i, answer in zip(numbers, answers, strict=True):
        if i != 99:
            np.testing.assert_allclose(answer.json()["outputs"][0]["data"], weight[i].tolist(), rtol=1e-6)


def test_more_rows_than_the_queue_holds_are_too_many_at_any_time(model):
    (answer,) = together(ask(served(model, waiting=4, most=4), "POST", INFER, question([[1, 2, 3]] * 5, [[1]] * 5)))
    assert answer.status == 413 and "5 rows; at most 4 are taken" in answer.json()["error"]


MIXING = {
    "values of other rows": lambda x: x - x.mean(0),
    "changes with the values": lambda x: x / x.abs().max(),
    "number of rows": lambda x: x / x.shape[0],
    "changes with the number": lambda x: x + td.arange(x.shape[0]).reshape(-1, 1),
}


@pytest.mark.parametrize("reason", MIXING)
def test_requests_for_models_that_mix_rows_are_not_joined(reason, tmp_path):
    td.export.save(MIXING[reason], td.ones(2, 3), tmp_path / "m", input_names=["x"], output_names=["y"])
    with pytest.warns(UserWarning, match=f"toy are not joined into batches: its output 'y' .*{reason}"):
        app = served(td.export.load(tmp_path / "m"), budget=0.05, most=64)
    rows = [np.arange(3.0) + 7 * k for k in range(12)]
    asked = ({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": r.tolist()}]} for r in rows)
    answers = together(*(ask(app, "POST", INFER, body) for body in asked))
    for row, answer in zip(rows, answers, strict=True):
        alone = MIXING[reason](td.tensor(row[None], dtype=td.float32)).numpy()
        np.testing.assert_allclose(alone[0], answer.json()["outputs"][0]["data"], rtol=1e-5)


class _Names(td.nn.Module):
    """Embeddings, attention and an LSTM: rows of numbers that stand for something."""

    def __init__(self):
        super().__init__()
        self.table, self.attention = td.nn.Embedding(7, 16), td.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.lstm = td.nn.LSTM(16, 8, batch_first=True)

    def forward(self, i):
        x, _ = self.lstm(self.attention(self.table(i)))
        return {"scores": x, "likeliest": x.argmax(-1), "half": x.half(), "infinite": td.log(x * 0)}


INDEPENDENT = {
    "names": (_Names, lambda: td.tensor([[1, 2, 3]])),
    "images": (lambda: td.nn.Sequential(td.nn.Conv2d(3, 24, 3), td.nn.BatchNorm2d(24), td.nn.ReLU(), td.nn.MaxPool2d(2)),
               lambda: td.ones(1, 3, 20, 20)),
    "bytes": (lambda: td.nn.Flatten(), lambda: td.ones(1, 3, 4, dtype=td.uint8)),
}  # fmt: skip


@pytest.mark.parametrize("kind", INDEPENDENT)
@pytest.mark.parametrize("freeze", [False, True])
def test_models_whose_rows_are_independent_are_joined(kind, freeze, tmp_path, recwarn):
    td.manual_seed(3)
    make, example = INDEPENDENT[kind]
    model = make()
    td.export.save(model.eval(), example(), tmp_path / "m")
    app = served(td.export.load(tmp_path / "m", freeze=freeze), most=64)
    assert app.store.get("toy").batcher.most == 64 and not [w for w in recwarn if "joined" in str(w.message)]
