"""td.graph_ops.cond and while_loop: branches and loops that do things."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import tandem as td

ops = td.graph_ops


@pytest.fixture
def graph():
    with td.Graph() as g:
        yield g


def started(graph):
    with graph:
        init = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(init)
    return session


def scalar(name="x", dtype=td.float32):
    return td.placeholder(dtype, (), name=name)


def test_only_the_chosen_function_does_things(graph):
    x, p = scalar(), scalar("p", td.bool)
    v = td.Variable(td.tensor(0.0), name="v")
    queue = td.FIFOQueue(10, td.float32, ())
    calls = []

    def yes():
        queued = queue.enqueue(x * 2)
        with td.control_dependencies([queued]):
            return x + v.assign_add(1.0)

    def no():
        return td.py_func(lambda a: calls.append(float(a)) or a - 1, [x], td.float32, ())

    result = ops.cond(p, yes, no)
    session = started(graph)
    assert 4 == session.run(result, {x: 3, p: True}).item()
    assert (1, 1, []) == (session.run(v).item(), queue._queue.size(), calls)
    assert 2 == session.run(result, {x: 3, p: False}).item()
    assert (1, 1, [3.0]) == (session.run(v).item(), queue._queue.size(), calls)


def test_branches_that_take_nothing_from_outside(graph):
    p = scalar("p", td.bool)
    v = td.Variable(td.tensor(0.0), name="v")
    done = ops.cond(p, lambda: v.assign_add(1.0).node, lambda: td.session.no_op())
    session = started(graph)
    for taken in (True, False, True):
        session.run(done, {p: taken})
    assert 2 == session.run(v).item()


def test_results_in_containers_and_straight_from_outside(graph):
    x, p = td.placeholder(td.float32, (None,)), scalar("p", td.bool)
    result = ops.cond(
        p, lambda: {"a": x, "b": [x.sum(), td.ones(2)]}, lambda: {"a": x * 2, "b": [td.tensor(5.0), td.zeros(2)]}
    )
    session = td.Session(graph)
    got = session.run(result, {x: [1, 2], p: True})
    assert [1, 2] == got["a"].tolist() and 3 == got["b"][0].item() and [1, 1] == got["b"][1].tolist()
    got = session.run(result, {x: [1, 2], p: False})
    assert [2, 4] == got["a"].tolist() and 5 == got["b"][0].item() and [0, 0] == got["b"][1].tolist()
    with pytest.raises(td.ShapeError, match="they must be alike"):
        ops.cond(p, lambda: [x], lambda: x)


def test_a_loop_that_does_things(graph):
    n, x = scalar("n", td.int32), td.placeholder(td.float32, (None,))
    queue = td.FIFOQueue(100, td.int32, ())
    total = td.Variable(td.zeros(2), name="total")
    seen = []

    def body(i, acc):
        queued = queue.enqueue(i * i)
        told = td.py_func(lambda a: seen.append(int(a)) or a, [i], td.int32, ())
        with td.control_dependencies([queued, total.assign_add(td.ones(2))]):
            return told + 1, acc + x * i

    i, acc = ops.while_loop(lambda i, acc: i < n, body, [td.tensor(0, dtype=td.int32), x])
    session = started(graph)
    got = session.run([i, acc], {n: 5, x: [1, 2]})
    assert 5 == got[0].item() and [11, 22] == got[1].tolist()
    with td.session.graph.outside_graphs():
        assert [0, 1, 4, 9, 16] == queue.dequeue_many(5).tolist()
    assert [0, 1, 2, 3, 4] == sorted(seen) and [5, 5] == session.run(total).tolist()


def test_nested_scopes_agree_with_structured_control_flow(graph):
    def program(cond, while_loop, n, x):
        def body(i, x):
            y = cond(
                x.sum() > 2,
                lambda: td.sin(x),
                lambda: while_loop(lambda y: y.sum() < n, lambda y: [y * 1.5 + 1], [x])[0],
            )
            return i + 1, y * x.shape[0]

        return while_loop(lambda i, x: i < n, body, (td.tensor(0.0), x))[1]

    n, x = scalar("n"), td.placeholder(td.float32, (None,))
    wired = program(ops.cond, ops.while_loop, n, x)
    structured = program(td.cond, td.while_loop, n, x)
    session = td.Session(graph)
    for start in ([0.5, 0.25], [3.0, 1.0, 2.0], [0.1]):
        a, b = session.run([wired, structured], {n: 4, x: start})
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)


def test_printing_in_a_loop(graph, capfd):
    n = scalar("n", td.int32)
    result = ops.while_loop(lambda i: i < n, lambda i: td.Print(i, [i * 10], "at ") + 1, td.tensor(0, dtype=td.int32))
    assert 3 == td.Session(graph).run(result, {n: 3}).item()
    assert ["at [0]", "at [10]", "at [20]"] == sorted(capfd.readouterr().err.split("\n")[:3])


def test_gradients_are_refused(graph):
    x = scalar()
    result = ops.while_loop(lambda y: y < 100, lambda y: y * 2, x)
    with pytest.raises(td.UnsupportedError, match=r"td\.while_loop"):
        td.gradients(result, [x])


def test_structured_bodies_name_the_way_out(graph):
    x = scalar()
    v = td.Variable(td.tensor(0.0))
    with pytest.raises(td.UnsupportedError, match=r"td\.graph_ops\.cond"):
        td.cond(x > 0, lambda: v.assign_add(1.0), lambda: x)


def test_in_place_operators_on_variables(graph):
    v = td.Variable(td.ones(2), name="v")
    p = scalar("p", td.bool)
    changed = ops.cond(p, lambda: v.mul_(3.0), lambda: v + 0)
    session = started(graph)
    assert [3, 3] == session.run(changed, {p: True}).tolist()
    assert [3, 3] == session.run(changed, {p: False}).tolist()


def test_a_run_has_a_deadline(graph):
    queue = td.FIFOQueue(1, td.float32, ())
    x = queue.dequeue() * 2
    p = scalar("p", td.bool)
    branched = ops.cond(p, lambda: queue.dequeue(), lambda: td.tensor(0.0))
    session = td.Session(graph)
    for fetch, feeds in [(x, {}), (branched, {p: True})]:
        begin = time.monotonic()
        with pytest.raises(td.DeadlineError, match=r"run: not done within 0\.05 s"):
            session.run(fetch, feeds, timeout=0.05)
        assert time.monotonic() - begin < 200  # nothing else ends the wait
    assert 0 == session.run(branched, {p: False}, timeout=300).item()


def test_a_waiting_loop_can_be_interrupted(graph):
    queue = td.FIFOQueue(1, td.float32, ())
    total = ops.while_loop(lambda t: t < 100, lambda t: t + queue.dequeue(), td.tensor(0.0))
    session = td.Session(graph)

    def interrupt():
        while not queue.counts["consumer_waits"]:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        session.run(total)
    thread.join()
