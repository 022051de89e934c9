"""Variables to files and back."""

import pytest

import tandem as td
from tests.session.graphs import _started


@pytest.fixture
def graph():
    with td.Graph() as g:
        yield g


def test_save_and_restore(graph, tmp_path):
    v, w = td.Variable(td.zeros(2), name="v"), td.Variable([[1.0]], name="w")
    step = td.group(v.assign_add(td.ones(2)), w.assign(w * 5))
    session = _started(graph)
    session.run(step)
    path = td.Saver().save(session, tmp_path / "model.safetensors")
    fresh = td.Session(graph)
    td.Saver().restore(fresh, path)
    assert fresh.run(v).tolist() == [1, 1] and fresh.run(w).tolist() == [[5]]
    with pytest.raises(td.ValueRangeError, match="no variable 'other'"):
        td.Saver({"other": v}).restore(fresh, path)
