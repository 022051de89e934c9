"""Sessions on a cluster: what a run gives is what one process gives."""

import threading

import numpy as np
import pytest

import tandem as td
from tests.distributed.cluster.clusters import both

PS0, PS1, W0, W1 = "/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:0", "/job:worker/task:1"


@pytest.fixture(scope="module")
def cluster():
    with td.distributed.Cluster({"ps": 2, "worker": 2}, engine="threads") as made:
        yield made


@pytest.fixture(autouse=True)
def empty(cluster):
    cluster.reset()


def linear():
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (None, 3), name="x")
        with td.device(PS0):
            w = td.Variable(td.ones((3, 2)), name="w")
        with td.device(PS1):
            b = td.Variable([1.0, 2.0], name="b")
        with td.device(W0):
            y = x @ w + b
            loss = (y * y).mean()
            gw, gb = td.gradients(loss, [w, b])
        step = td.session.group(w.assign_sub(0.01 * gw), b.assign_sub(0.01 * gb))
        init = td.global_variables_initializer()
    return graph, x, (w, b), y, loss, step, init


def test_training_is_that_of_one_process(cluster):
    graph, x, (w, b), y, loss, step, init = linear()

    def use(session):
        session.run(init)
        losses = [session.run([loss, step], {x: td.ones((n, 3)).numpy()})[0] for n in (2, 5, 1)]
        return [*losses, *session.run([w, b, y], {x: [[1, 2, 3]]}), session.value_of(w)]

    both(graph, cluster, use)


def test_tasks_that_need_each_others_values_do_not_wait_for_each_other(cluster):
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (2,), name="x")
        with td.device(PS0):
            base = x + 1
        with td.device(W0):
            left = base * 2
        with td.device(W1):
            right = base * 3
        with td.device(W0):
            first = left + td.tanh(right)  # of values that come from two tasks, one of which waits for left
        with td.device(W1):
            second = right + td.tanh(left)
    both(graph, cluster, lambda session: session.run([first, second], {x: [0.1, 0.2]}, timeout=300))


def test_a_second_run_sends_no_graph(cluster):
    graph, x, _, _, _, step, init = linear()
    session = td.Session(graph, target=cluster)
    session.run(init)
    session.run(step, {x: [[1, 2, 3]]})
    before = cluster.describe()
    for n in (1, 2, 3):
        session.run(step, {x: np.ones((n, 3))})
    after = cluster.describe()
    for task in (PS0, PS1, W0):
        assert after[task]["counts"]["registered"] == before[task]["counts"]["registered"]
        assert after[task]["counts"]["steps"] == before[task]["counts"]["steps"] + 3


def test_a_program_that_a_task_has_let_go_of_is_sent_again(cluster):
    graph, x, _, y, _, _, init = linear()
    session = td.Session(graph, target=cluster)
    session.run(init)
    first = session.run(y, {x: [[1, 2, 3]]})
    cluster.engine.tasks[PS1].programs.clear()
    cluster.engine.tasks[W0].programs.clear()
    np.testing.assert_array_equal(first.numpy(), session.run(y, {x: [[1, 2, 3]]}).numpy())


def test_what_waits_for_another_task_comes_after(cluster):
    with td.Graph() as graph:
        with td.device(PS0):
            v = td.Variable(1.0, name="v")
        with td.device(W0):
            u = td.Variable(0.0, name="u")
        with td.control_dependencies([v.assign(5.0)]):
            copied = u.assign(v.value())
        init = td.global_variables_initializer()

    def use(session):
        session.run(init)
        return [session.run(copied), session.run(v), session.run(u)]

    assert [t.item() for t in both(graph, cluster, use)] == [5.0, 5.0, 5.0]


def test_variables_are_shared_by_name_and_outlive_sessions(cluster):
    graph, *_, init = linear()
    td.Session(graph, target=cluster).run(init)
    (
        other,
        *_,
    ) = linear()
    np.testing.assert_array_equal(np.ones((3, 2)), td.Session(other, target=cluster).run("w:0").numpy())


def test_concurrent_steps_keep_their_tensors_apart(cluster):
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (None,), name="x")
        with td.device(W0):
            a = x * 2
        with td.device(W1):
            b = a + 1
        with td.device(W0):
            c = (b * a).sum()
    session = td.Session(graph, target=cluster)
    wrong = []

    def work(k):
        for n in range(20):
            value = float(k * 100 + n)
            if session.run(c, {x: [value]}).item() != (2 * value + 1) * 2 * value:
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_an_error_has_the_users_line_and_the_task(cluster):
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (None,), name="x")
        with td.device(W1):
            y = td.reshape(x, (2, 3))  # the line
        with td.device(W0):
            z = y + 1
    session = td.Session(graph, target=cluster)
    with pytest.raises(td.ShapeError, match="reshape") as caught:
        session.run(z, {x: np.ones(5)})
    assert "test_session.py" in str(caught.value)
    assert any(W1 in note for note in caught.value.__notes__)
    assert session.run(z, {x: np.ones(6)}).shape == (2, 3)  # others go on


def test_a_variable_without_a_value_is_named(cluster):
    graph, x, _, y, *_ = linear()
    with pytest.raises(td.ValueRangeError, match="has no value on /job:ps"):
        td.Session(graph, target=cluster).run(y, {x: [[1, 2, 3]]})


def test_time_outs_leave_the_cluster_as_it_was(cluster):
    with td.Graph() as graph:
        with td.device(PS0):
            queue = td.FIFOQueue(2, td.float32, (), name="never")
        with td.device(W0):
            y = queue.dequeue() + 1
        put = queue.enqueue(2.0)
    session = td.Session(graph, target=cluster)
    with pytest.raises(td.DeadlineError):
        session.run(y, timeout=0.2)
    session.run(put)
    assert session.run(y).item() == 3.0
    assert all(d["steps"] == 0 for d in cluster.describe().values())


def test_a_run_says_what_crosses(cluster):
    graph, x, _, y, *_ = linear()
    text = td.Session(graph, target=cluster).explain(y, [x])
    assert "3 tasks, 2 messages" in text and f"to {W0}: w/read_0:0 (3, 2)" in text


def test_modules_of_eager_code_run_on_tasks(cluster):
    layer = td.nn.Linear(3, 2)
    with td.Graph() as graph, td.device(W1):
        x = td.placeholder(td.float32, (None, 3), name="x")
        y = layer(x)
    expected = layer(td.ones((4, 3))).detach().numpy()
    np.testing.assert_allclose(
        expected, td.Session(graph, target=cluster).run(y, {x: np.ones((4, 3))}).numpy(), rtol=1e-6
    )


def test_any_tensor_may_be_fed(cluster):
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (4,), name="x")
        with td.device(W0):
            first, second = td.split(x * 2.0, 2)
        with td.device(W1):
            y = first * 10.0 + second

    def use(session):
        fed = {first: [1.0, 2.0], second: [3.0, 4.0]}
        return [session.run(y, fed), session.run(y, {x: np.ones(4), first: [5.0, 6.0]}), session.run(first, fed)]

    both(graph, cluster, use)
