"""Requests and answers of the protocol."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

import tandem as td
from tests.serve.client import ask, saved, together
from tests.serve.requests import question, served


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return td.export.load(saved(tmp_path_factory.mktemp("models") / "toy.model"))


INFER = "/v2/models/toy/infer"


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
        ({**good, "outputs": [{"name": "z"}]}, 400, "outputs ['z'] do not exist"), (changed(name=["x"]), 400, "an input ['x']"),
        ({**good, "outputs": 5}, 400, '"outputs" must be'), ({**good, "outputs": [{"name": {}}]}, 400, '"outputs" must be'),
        ({**good, "outputs": [{"name": "sum", "parameters": 3}]}, 400, '"parameters" must be an object'),
        ({**good, "parameters": [1]}, 400, '"parameters" must be an object'),
        (changed(parameters=[1]), 400, '"parameters" must be an object'),
        (changed(parameters={"binary_data_size": 5}), 400, "input 'x' has 12 bytes; binary_data_size is 5"),
        (changed(data=[1, None, "2"]), 400, "data of input 'x' must be 3 numbers"),
        ({**good, "id": None}, 400, '"id" must be a text'),
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


@pytest.mark.parametrize("dtype", [td.float32, td.float16, td.float64])
def test_what_is_not_finite_is_valid_json_and_comes_back_as_it_was(dtype, tmp_path):
    """null is NaN, a number beyond what 64 bits hold infinity; so in requests too."""
    path = tmp_path / "m"
    td.export.save(lambda x: x / 1, td.ones(2, dtype=dtype), path, input_names=["x"], output_names=["y"])
    name = {td.float32: "FP32", td.float16: "FP16", td.float64: "FP64"}[dtype]
    body = f'{{"inputs": [{{"name": "x", "shape": [4], "datatype": "{name}", "data": [1.5, null, 1e999, -1e999]}}]}}'
    (answer,) = together(ask(served(td.export.load(path)), "POST", INFER, body.encode()))

    def no_constant(text):
        raise AssertionError(f"{text} is no JSON")

    found = json.loads(answer.body, parse_constant=no_constant)["outputs"][0]
    assert found == {"name": "y", "shape": [4], "datatype": name, "data": [1.5, None, np.inf, -np.inf]}
    np.testing.assert_array_equal([1.5, np.nan, np.inf, -np.inf], np.array(found["data"], np.float32))


@pytest.mark.parametrize("dtype, name, bad", [(td.int8, "INT8", 300), (td.uint8, "UINT8", -1), (td.bool, "BOOL", 2)])
def test_numbers_that_an_input_cannot_hold_are_refused(dtype, name, bad, tmp_path):
    path = tmp_path / "m"
    td.export.save(lambda x: x | x, td.ones(2, dtype=dtype), path, input_names=["x"], output_names=["y"])
    app = served(td.export.load(path))
    asked = [{"inputs": [{"name": "x", "shape": [2], "datatype": name, "data": [1, n]}]} for n in (0, bad)]
    good, refused = together(*(ask(app, "POST", INFER, body) for body in asked))
    assert good.json()["outputs"][0]["data"] == [1, 0]
    assert refused.status == 400 and f"must be 2 values of {name}" in refused.json()["error"]
