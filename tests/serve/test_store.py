"""Models of a server."""

from __future__ import annotations

import asyncio

import pytest

import tandem as td
from tandem.serve import App, ModelStore
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
