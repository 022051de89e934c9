"""The primitives of dataflow."""

import pytest

import tandem as td
from tests.session.loops import ops


@pytest.fixture
def graph():
    with td.Graph() as g:
        yield g


def scalar(name="x", dtype=td.float32):
    return td.placeholder(dtype, (), name=name)


def outcome(session):
    return next(reversed(session._programs.values())).last_outcome


# -- branches


def test_the_classic_example(graph):
    x, y, z = scalar("x"), scalar("y"), scalar("z")
    less = x < y
    added = ops.switch(x, less).output_true + ops.switch(z, less).output_true
    squared = td.square(ops.switch(y, less).output_false)
    result, index = ops.merge([squared, added])
    session = td.Session(graph)
    for a, b, c in [(1, 2, 5), (3, 2, 5), (2, 2, -1)]:
        got, which = session.run([result, index], {x: a, y: b, z: c})
        assert (a + c if a < b else b * b, int(a < b)) == (got.item(), which.item())
        assert outcome(session).executed == 2  # the comparison and one branch


@pytest.mark.parametrize("taken", [False, True])
def test_switch_gives_one_live_and_one_dead_output(graph, taken):
    x, p = scalar(), scalar("p", td.bool)
    no, yes = ops.switch(x, p)
    dead, live = (no, yes) if taken else (yes, no)
    session = td.Session(graph)
    assert 3 == session.run(live, {x: 3, p: taken}).item()
    with pytest.raises(td.ValueRangeError, match=r"is dead in this run.*not taken") as caught:
        session.run([live, dead], {x: 3, p: taken})
    assert "test_primitives.py" in str(caught.value)
    with pytest.raises(td.ValueRangeError, match="dead"):
        session.run(td.exp(dead) + live, {x: 3, p: taken})
    assert outcome(session).executed == 0


def test_merge_of_dead_inputs_is_dead(graph):
    x, p, q = scalar(), scalar("p", td.bool), scalar("q", td.bool)
    merged, index = ops.merge([ops.switch(x, p).output_true + 1, ops.switch(x, q).output_true + 2])
    session = td.Session(graph)
    assert [4, 0] == [t.item() for t in session.run([merged, index], {x: 3, p: True, q: False})]
    assert [5, 1] == [t.item() for t in session.run([merged, index], {x: 3, p: False, q: True})]
    with pytest.raises(td.ValueRangeError, match="dead"):
        session.run(merged, {x: 3, p: False, q: False})


def test_merge_of_different_sizes_has_an_unknown_one(graph):
    x, p = td.placeholder(td.float32, (4,)), scalar("p", td.bool)
    no, yes = ops.switch(x, p)
    merged = ops.merge([no[:2] * 2, yes]).output
    assert merged.get_shape() == (None,)
    total = merged.sum() / merged.shape[0]
    session = td.Session(graph)
    assert 3 == session.run(total, {x: [1, 2, 3, 4], p: False}).item()
    assert 2.5 == session.run(total, {x: [1, 2, 3, 4], p: True}).item()
