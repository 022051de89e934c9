"""A task's table of programs is bounded: what was not used for long is let go of, and registered again when it is run."""

import pytest

import tandem as td
from tandem.distributed.cluster import task
from tests.distributed.cluster.test_session import PS0, W0, cluster, empty  # noqa: F401


@pytest.mark.parametrize("bound", [4, pytest.param(task.MAX_PROGRAMS, marks=pytest.mark.slow)])
def test_programs_beyond_the_bound_are_registered_again(bound, cluster, monkeypatch):  # noqa: F811
    monkeypatch.setattr(task, "MAX_PROGRAMS", bound)
    with td.Graph() as graph:
        with td.device(PS0):
            v = td.Variable([1.0, 2.0], name="v")
        with td.device(W0):
            outs = [v * float(k) for k in range(bound + 3)]
        init = td.global_variables_initializer()
    session = td.Session(graph, target=cluster)
    session.run(init)
    counts = lambda: {t: d["counts"]["registered"] for t, d in cluster.describe().items() if t in (PS0, W0)}

    def run(k):
        """Which tasks registered something."""
        before = counts()
        assert session.run(outs[k]).tolist() == [k, 2.0 * k]
        return {t for t, n in counts().items() if n > before[t]}

    for k in range(len(outs)):
        assert run(k) == {PS0, W0}
        assert all(len(d["programs"]) <= bound for d in cluster.describe().values())
    assert run(len(outs) - 1) == set()  # it is there, at all tasks
    assert run(0) == {PS0, W0}  # it was let go of
    assert run(0) == set()
    assert run(len(outs) - 1) == set()  # the least recently used went, not the last
