"""Tasks as Ray actors."""

import sys

import numpy as np
import pytest

import tandem as td
from tests.distributed.cluster.test_session import PS0, W0, linear


@pytest.mark.slow
def test_tasks_are_actors():
    pytest.importorskip("ray", reason="Ray is not installed")
    with td.distributed.Cluster({"ps": 2, "worker": 1}, engine="ray", threads=1) as cluster:
        graph, x, (w, b), y, loss, step, init = linear()

        def use(session):
            session.run(init)
            losses = [session.run([loss, step], {x: np.ones((n, 3))})[0] for n in (2, 5)]
            return [*losses, *session.run([w, b, y], {x: [[1, 2, 3]]})]

        found = use(td.Session(graph, target=cluster))
        for a, c in zip(use(td.Session(graph, soft_placement=True)), found, strict=True):
            np.testing.assert_array_equal(a.numpy(), c.numpy())
        cluster.kill(W0)
        session = td.Session(graph, target=cluster)
        with pytest.raises(td.TaskError, match=W0):
            session.run(y, {x: [[1, 2, 3]]})
        cluster.restart(W0)
        np.testing.assert_array_equal(found[-1].numpy(), session.run(y, {x: [[1, 2, 3]]}).numpy())
        assert "w" in cluster.describe(PS0)["variables"]


def test_without_ray_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(td.UnsupportedError, match="Ray, which is not installed"):
        td.distributed.Cluster({"worker": 1}, address="auto")
