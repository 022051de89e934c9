"""Tensors of deferred graphs."""

import numpy as np
import pytest

import tandem as td
from tests.session.graphs import _started


@pytest.fixture
def graph():
    with td.Graph() as g:
        yield g


def test_symbolic_tensors_tell_and_convert_as_tensors_do(graph):
    x = td.placeholder(td.float32, (4, 3), name="x")
    rows = td.placeholder(td.float32, (None, 3), name="rows")
    assert (x.numel(), x.nelement(), x.size, x.size(), x.size(-1), x.device) == (12, 12, 12, (4, 3), 3, None)
    assert rows.size(1) == 3 and rows.size(dim=0) is rows.shape[0]
    flat = rows.reshape(rows.numel())
    with pytest.raises(td.UnsupportedError, match="how many elements 'rows:0' has is unknown"):
        int(rows.size)
    assert x.to(td.float32) is x and x.to(td.int64).dtype is td.int64 and x.to("int8").dtype is td.int8
    assert x.to(rows.to(int)).dtype is td.int64 and x.to(dtype=td.float64, copy=True).dtype is td.float64
    there = x.to("cpu")
    assert str(there.device) == "cpu" and (there + 1).device is None
    whole = rows.to(td.int32)
    session = td.Session(graph)
    assert session.run([flat, whole], {rows: [[1.5, 2, 3]]})[1].tolist() == [[1, 2, 3]]
    assert session.run(flat, {rows: np.ones((2, 3))}).shape == (6,)
    assert session.run(there, {x: np.ones((4, 3))}).tolist() == np.ones((4, 3)).tolist()


def test_values_cannot_be_changed_in_place(graph):
    x = td.placeholder(td.float32, (2,))
    with pytest.raises(td.UnsupportedError, match="nothing can change in place"):
        x.add_(1)
    v = td.Variable([1.0, 2.0])
    doubled = v.mul_(2)
    assert _started(graph).run([doubled, v])[1].tolist() == [2, 4]


def test_symbolic_tensors_have_no_values(graph):
    x = td.placeholder(td.float32, (), name="x")
    for read in (float, int, bool, np.asarray, lambda x: x.item(), lambda x: x.tolist()):
        with pytest.raises(td.UnsupportedError, match="has no value until a session runs it"):
            read(x)
    with pytest.raises(td.UnsupportedError, match="cannot be changed"):
        x[...] = 1
