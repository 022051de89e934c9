"""Ordinary nodes between primitives become plans."""

import numpy as np
import pytest

import tandem as td
from tests.session.loops import counting_loop, ops


@pytest.fixture
def graph():
    with td.Graph() as g:
        yield g


def scalar(name="x", dtype=td.float32):
    return td.placeholder(dtype, (), name=name)


def outcome(session):
    return next(reversed(session._programs.values())).last_outcome


def test_ordinary_nodes_between_primitives_are_one_plan(graph):
    x, p = td.placeholder(td.float32, (None,)), scalar("p", td.bool)
    no, yes = ops.switch(td.exp(x) * 2 + 1, p)
    merged = ops.merge([td.sin(no) + td.cos(no), td.sqrt(yes) / (1 + yes)]).output
    result = (merged * merged).sum()
    session = td.Session(graph)
    for taken in (True, False):
        a = np.linspace(0, 1, 5, dtype="f")
        b = np.exp(a) * 2 + 1
        c = np.sqrt(b) / (1 + b) if taken else np.sin(b) + np.cos(b)
        np.testing.assert_allclose(session.run(result, {x: a, p: taken}).item(), (c * c).sum(), rtol=1e-5)
        assert 3 == outcome(session).executed


def test_reads_and_writes_keep_their_order_around_primitives(graph):
    v = td.Variable(td.tensor(1.0), name="v")
    init = td.global_variables_initializer()
    p = scalar("p", td.bool)
    before = v * 10
    doubled = v.assign(v * 2)
    after = v * 10
    merged = ops.merge([*ops.switch(after, p)]).output
    session = td.Session(graph)
    session.run(init)
    assert [10, 2, 20, 20] == [t.item() for t in session.run([before, doubled, after, merged], {p: True})]


def test_a_loop_that_reads_is_over_before_a_later_write(graph):
    v = td.Variable(td.tensor(1, dtype=td.int32), name="v")
    init = td.global_variables_initializer()
    n = scalar("n", td.int32)
    first = v.assign_add(td.tensor(1, dtype=td.int32))  # 2, before the loop
    result, _ = counting_loop(td.tensor(0, dtype=td.int32), n, step=lambda i: i + v)
    last = v.assign(td.tensor(100, dtype=td.int32))
    session = td.Session(graph)
    for _ in range(5):
        session.run(init)
        got = session.run([first, result, last, v], {n: 40})
        assert [2, 40, 100, 100] == [t.item() for t in got]


def test_gradients_do_not_pass_through_primitives_but_beside_them(graph):
    x, p = scalar(), scalar("p", td.bool)
    merged = ops.merge([*ops.switch(x * x, p)]).output
    with pytest.raises(td.UnsupportedError, match=r"td\.cond"):
        td.gradients(merged * 2, [x])
    (slope,) = td.gradients(td.sin(merged) * merged, [merged])
    got = td.Session(graph).run(slope, {x: 2.0, p: True}).item()
    np.testing.assert_allclose(got, np.cos(4.0) * 4 + np.sin(4.0), rtol=1e-5)


def test_gradients_pass_through_what_an_earlier_group_computed():
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (None,), name="x")
        v = td.Variable(td.zeros(()), name="v")
        s = x - 1.0
        a = x * 0.5 + td.tanh(s)
        written = v.assign_add(s.sum())
        after = td.py_func(lambda z: z, [written], td.float32, ())  # after a write: runs group by group
        with td.control_dependencies([written]):
            (slope,) = td.gradients((a * a).sum(), [s])
        init = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(init)
    data = np.array([0.5, 1.0, 2.0], dtype=np.float32)
    alone, together = session.run(slope, {x: data}), session.run([slope, after], {x: data})[0]
    np.testing.assert_allclose(alone.numpy(), together.numpy(), rtol=1e-6)
    expected = 2 * (data / 2 + np.tanh(data - 1)) * (1 - np.tanh(data - 1) ** 2)
    np.testing.assert_allclose(alone.numpy(), expected, rtol=1e-5)
