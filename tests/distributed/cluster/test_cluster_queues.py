"""Queues of a task, used from others: back-pressure, close, cancel; runs at once on shared state."""

import threading

import numpy as np
import pytest

import tandem as td
from tests.distributed.cluster.test_session import PS0, PS1, W0, W1, both, cluster, empty  # noqa: F401


def pipeline(name, capacity=2):
    """Worker 0 fills a queue on a server, worker 1 empties it."""
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (2,), name="x")
        with td.device(PS0):
            queue = td.FIFOQueue(capacity, td.float32, (2,), name=name)
        with td.device(W0):
            put = queue.enqueue(x * 2.0)
        with td.device(W1):
            got = queue.dequeue() + 1.0
            many = queue.dequeue_many(2).sum()
        size, close, cancel = queue.size(), queue.close(), queue.close(cancel_pending_enqueues=True)
    return graph, x, put, got, many, size, close, cancel


def test_rows_come_out_as_they_went_in(cluster):  # noqa: F811
    graph, x, put, got, many, size, *_ = pipeline("rows", 10)

    def use(session):
        for k in range(4):
            session.run(put, {x: [k, k + 1]})
        return [session.run(size), session.run(got), session.run(got), session.run(many), session.run(size)]

    both(graph, cluster, use)


def test_a_full_queue_holds_producers_of_other_tasks(cluster):  # noqa: F811
    graph, x, put, got, _, size, *_ = pipeline("full")
    session = td.Session(graph, target=cluster)
    session.run(put, {x: [0, 0]})
    session.run(put, {x: [1, 1]})
    with pytest.raises(td.DeadlineError):
        session.run(put, {x: [2, 2]}, timeout=0.2)
    third = threading.Thread(target=session.run, args=(put, {x: [3, 3]}))
    third.start()
    assert session.run(got).tolist() == [1.0, 1.0]
    third.join(300)
    assert not third.is_alive()
    assert session.run(size).item() == 2
    assert [session.run(got).tolist()[0] for _ in range(2)] == [3.0, 7.0]


def test_closing_ends_who_waits(cluster):  # noqa: F811
    graph, x, put, got, many, _, close, cancel = pipeline("closing")
    session = td.Session(graph, target=cluster)
    session.run(put, {x: [1, 2]})
    errors = []

    def wait():
        try:
            session.run(many)
        except td.QueueClosedError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    session.run(close)
    waiting.join(300)
    assert len(errors) == 1 and "closing" in str(errors[0])
    with pytest.raises(td.QueueClosedError):
        session.run(put, {x: [1, 2]})
    assert session.run(got).tolist() == [3.0, 5.0]
    session.run(cancel)


def test_training_evaluation_and_saving_at_once(cluster, tmp_path):  # noqa: F811
    with td.Graph() as graph:
        with td.device(PS0):
            queue = td.FIFOQueue(4, td.float32, (3,), name="examples")
            w = td.Variable(td.zeros(3), name="w")
        with td.device(PS1):
            steps = td.Variable(td.tensor(0), name="steps", trainable=False)
        x = td.placeholder(td.float32, (3,), name="x")
        put = queue.enqueue(x)
        with td.device(W0):
            batch = queue.dequeue_many(2)
            loss = ((batch - w) ** 2).mean()
            (slope,) = td.gradients(loss, [w])
        with td.control_dependencies([w.assign_sub(slope * 0.1)]):
            train = steps.assign_add(1)
        with td.device(W1):
            evaluated = (w * w).sum()
        init = td.global_variables_initializer()
        saver = td.session.Saver()
    session = td.Session(graph, target=cluster)
    session.run(init)
    errors, rounds = [], 12

    def several(work):
        def run():
            try:
                for k in range(rounds):
                    work(k)
            except Exception as error:
                errors.append(error)

        return threading.Thread(target=run)

    threads = [
        several(lambda k: [session.run(put, {x: [1.0, 2.0, 3.0]}) for _ in range(2)]),
        several(lambda k: session.run(train)),
        several(lambda k: session.run(evaluated)),
        several(lambda k: saver.save(session, str(tmp_path / "model"), k)),
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join(300)
    assert not errors and not any(t.is_alive() for t in threads)
    assert session.run(steps).item() == rounds
    expected = np.zeros(3)
    for _ in range(rounds):
        expected -= 0.1 * 2 / 3 * (expected - [1, 2, 3])
    np.testing.assert_allclose(session.run(w).numpy(), expected, rtol=1e-5)


def test_an_aborted_step_leaves_others_running(cluster):  # noqa: F811
    graph, x, put, got, *_ = pipeline("others")
    session = td.Session(graph, target=cluster)
    found = []
    waiting = threading.Thread(target=lambda: found.append(session.run(got)))
    waiting.start()
    with td.Graph() as other:
        bad = td.placeholder(td.float32, (None,), name="bad")
        with td.device(W0):
            y = td.reshape(bad, (2, 2))
        with td.device(W1):
            z = y * 2.0
        with td.device(PS0):
            z = z + 1.0
    with pytest.raises(td.ShapeError):
        td.Session(other, target=cluster).run(z, {bad: [1, 2, 3]})
    session.run(put, {x: [4, 5]})
    waiting.join(300)
    assert found[0].tolist() == [9.0, 11.0]


def test_closing_a_session_ends_its_steps(cluster):  # noqa: F811
    graph, x, put, got, *_ = pipeline("session")
    session, other = td.Session(graph, target=cluster), td.Session(graph, target=cluster)
    errors = []

    def wait():
        try:
            session.run(got)
        except td.CancelledError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not cluster.describe(W1)["steps"]:
        pass
    session.close()
    waiting.join(300)
    assert errors and "closed" in str(errors[0])
    other.run(put, {x: [1, 2]})
    assert other.run(got).tolist() == [3.0, 5.0]


@pytest.mark.parametrize("reader", [PS0, W0])
def test_a_variable_is_read_after_what_its_reader_waits_for(cluster, reader):  # noqa: F811
    with td.Graph() as graph:
        with td.device(PS0):
            v = td.Variable([1.0, 2.0], name="v")
            tokens = td.session.FIFOQueue(2, [td.float32], [()], name="tokens")
            begun = td.session.FIFOQueue(2, [td.float32], [()], name="begun")
            put, token = tokens.enqueue([td.tensor(1.0)]), tokens.dequeue()
            has_begun, wait = begun.enqueue([td.tensor(1.0)]), begun.dequeue()
            update = v.assign(v * 10)
        with td.device(reader):
            early = v + 0
            with td.control_dependencies([has_begun, token]):
                late, twice = v.value(), v * 2
            after = late + 1
        init = td.global_variables_initializer()
    session = td.Session(graph, target=cluster)
    session.run(init)
    found = []
    thread = threading.Thread(target=lambda: found.extend(session.run([early, late, twice, after], timeout=300)))
    thread.start()
    session.run(wait, timeout=300)  # the run is under way, and waits for a token
    session.run(update)
    session.run(put)
    thread.join()
    assert [t.tolist() for t in found[1:]] == [[10.0, 20.0], [20.0, 40.0], [11.0, 21.0]]


@pytest.mark.parametrize("other", [(3, td.int64, ()), (3, td.float32, (2,)), (4, td.float32, ())])
def test_another_queue_of_the_same_name_is_refused(cluster, other):  # noqa: F811
    def put(capacity, dtype, shape):
        with td.Graph() as graph, td.device(PS0):
            queue = td.FIFOQueue(capacity, dtype, shape, name="shared")
            made = queue.enqueue(td.zeros(shape, dtype=dtype))
        td.Session(graph, target=cluster).run(made)

    for _ in range(2):
        put(3, td.float32, ())  # whoever means the same one shares it
    with pytest.raises(ValueError, match=r"queue 'shared' has .* here, and on /job:ps/task:0 there is another"):
        put(*other)
