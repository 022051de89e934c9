"""Branches and loops whose nodes are on several tasks."""

import numpy as np
import pytest

import tandem as td
from tests.distributed.cluster.test_session import PS0, W0, W1, both, cluster, empty  # noqa: F401


def test_a_branch_over_tasks(cluster):  # noqa: F811
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (), name="x")
        y = td.placeholder(td.float32, (), name="y")
        with td.device(W0):
            less = x < y
            no, yes = td.graph_ops.switch(x, less)
            yes = yes + 10.0
        with td.device(W1):
            no = td.square(no)
        with td.device(PS0):
            result = td.graph_ops.merge([no, yes]).output * 2.0

    def use(session):
        return [session.run(result, {x: a, y: b}) for a, b in ((1, 2), (3, 2), (5, 9))]

    assert [t.item() for t in both(graph, cluster, use)] == [22.0, 18.0, 30.0]


def test_what_a_branch_not_taken_leaves_dead_is_said(cluster):  # noqa: F811
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (), name="x")
        with td.device(W0):
            no, _ = td.graph_ops.switch(x, x > 0)
        with td.device(W1):
            y = no + 1.0
    session = td.Session(graph, target=cluster)
    assert session.run(y, {x: -1.0}).item() == 0.0
    with pytest.raises(td.ValueRangeError, match="dead in this run"):
        session.run(y, {x: 1.0})


def test_a_loop_whose_body_is_on_two_tasks(cluster):  # noqa: F811
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (None,), name="x")
        with td.device(PS0):
            w = td.Variable([2.0, 3.0], name="w")

        def body(i, total):
            with td.device(W1):
                grown = total * w + x
            with td.device(W0):
                return i + 1, grown - 1.0

        with td.device(W0):
            i, total = td.graph_ops.while_loop(lambda i, total: i < 5, body, [td.tensor(0), td.zeros(2) + x])
            result = total.sum() + i
        init = td.global_variables_initializer()

    def use(session):
        session.run(init)
        return [session.run(result, {x: [1.0, 2.0]}), session.run(total, {x: [0.5, 0.25]})]

    both(graph, cluster, use)


def test_the_predicate_of_a_loop_on_another_task(cluster):  # noqa: F811
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (), name="x")

        def going(v):
            with td.device(W1):
                return td.square(v) < 1000.0

        with td.device(W0):
            (last,) = td.graph_ops.while_loop(going, lambda v: [v * 1.5 + 1.0], [x])

    def use(session):
        return [session.run(last, {x: v}) for v in (0.0, 3.0, 100.0)]

    both(graph, cluster, use)


def test_loops_in_loops_and_branches_in_loops(cluster):  # noqa: F811
    with td.Graph() as graph:
        n = td.placeholder(td.int64, (), name="n")

        def inner(k, s):
            with td.device(W1):
                return k + 1, s + k

        def outer(i, total):
            with td.device(W0):
                _, s = td.graph_ops.while_loop(lambda k, s: k < i, inner, [td.tensor(0), td.tensor(0) + i])

            def odd():
                with td.device(W1):
                    return total + s * 2

            def even():
                with td.device(W0):
                    return total - s

            with td.device(W0):
                return i + 1, td.graph_ops.cond(i % 2 == 1, odd, even)

        with td.device(W0):
            _, total = td.graph_ops.while_loop(lambda i, total: i < n, outer, [td.tensor(0), td.tensor(0)])

    def use(session):
        return [session.run(total, {n: k}) for k in (0, 1, 6)]

    both(graph, cluster, use)


def test_a_variable_is_changed_in_a_loop_from_another_task(cluster):  # noqa: F811
    with td.Graph() as graph:
        with td.device(PS0):
            v = td.Variable(1.0, name="v")

        def body(i):
            with td.device(W1):
                amount = i.astype(td.float32) * 2.0
            with td.colocate_with(v):
                added = v.assign_add(amount)
            with td.control_dependencies([added]):
                return [i + 1]

        with td.device(W0):
            (count,) = td.graph_ops.while_loop(lambda i: i < 4, body, [td.tensor(0)])
        init = td.global_variables_initializer()

    def use(session):
        session.run(init)
        return [session.run(count), session.run(v)]

    assert [t.item() for t in both(graph, cluster, use)] == [4, 13.0]


def test_structured_loops_run_on_one_task(cluster):  # noqa: F811
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (3,), name="x")
        with td.device(W0):
            h = x * 2.0
        with td.device(W1):
            y = td.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * h), (td.tensor(0), x))[1].sum()
        (slope,) = td.gradients(y, [x])

    def use(session):
        return session.run([y, slope], {x: np.array([1.0, 2.0, 0.5])})

    expected, found = use(td.Session(graph, soft_placement=True)), use(td.Session(graph, target=cluster))
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)


def test_a_structured_loop_over_tasks_is_refused_and_a_classic_one_is_wired(cluster):  # noqa: F811
    import tandem.v1 as tf

    def body(v):
        with td.device(W1):
            return v * 3.0

    with td.Graph() as graph:
        x = td.placeholder(td.float32, (), name="x")
        with td.device(W0):
            with pytest.raises(td.UnsupportedError, match="one task"):
                td.while_loop(lambda v: v < 50.0, body, (x,))
            y = tf.while_loop(lambda v: v < 50.0, body, [x])
    assert td.Session(graph, target=cluster).run(y, {x: 2.0}).item() == 54.0


def test_a_node_of_a_body_that_fails_ends_the_run_at_all_tasks(cluster):  # noqa: F811
    """The task that fails waits for messages of others meanwhile, which wait for it."""
    for k in range(3):  # programs are new each time: they are compiled while others wait
        with td.Graph() as graph:
            x = td.placeholder(td.float32, (None,), name="x")
            with td.device(W0):
                start = td.tensor(k) + 0

            def body(i, x=x):
                with td.device(W1):
                    added = td.reshape(x, (2, 2)).sum()
                with td.device(W0):
                    return [i + 1 + td.astype(added, td.int64) * 0]

            (end,) = td.graph_ops.while_loop(lambda i: i < 9, body, [start])
        session = td.Session(graph, target=cluster)
        with pytest.raises(td.ShapeError, match="3 elements do not fit"):
            session.run(end, {x: [1.0, 2.0, 3.0]})
        assert session.run(end, {x: [0.0] * 4}).item() == 9
    assert all(d["steps"] == 0 for d in cluster.describe().values())


def test_a_task_that_fails_while_it_waits_for_another_ends_the_run(cluster):  # noqa: F811
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (None,), name="x")
        with td.device(PS0):
            queue = td.FIFOQueue(1, td.float32, (), name="nothing comes here")
        with td.device(W0):
            late = queue.dequeue() + 1.0
        with td.device(W1):
            result = late + 1.0, td.reshape(x, (2, 2))
    session = td.Session(graph, target=cluster)
    with pytest.raises(td.ShapeError, match="3 elements do not fit"):
        session.run(result, {x: [1.0, 2.0, 3.0]})
