"""Queues, eagerly and in graphs; coordinators and queue runners."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import tandem as td


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


class Thread(threading.Thread):
    """A thread whose result, or exception, `get` gives."""

    def __init__(self, f, *args):
        super().__init__(daemon=True)
        self.f, self.args, self.error = f, args, None
        self.start()

    def run(self):
        try:
            self.result = self.f(*self.args)
        except BaseException as error:
            self.error = error

    def get(self):
        self.join(300)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.result


# -- eager


def test_first_in_first_out():
    queue = td.FIFOQueue(10, td.int64, ())
    queue.enqueue(3)
    queue.enqueue_many([1, 4, 1])
    assert 4 == queue.size()
    assert 3 == queue.dequeue().item()
    assert [1, 4] == queue.dequeue_many(2).tolist()
    assert 1 == queue.size()


def test_rows_of_several_components_and_names():
    queue = td.FIFOQueue(4, [td.float32, td.int32], [(2,), ()])
    queue.enqueue([[1.0, 2.0], 7])
    queue.enqueue_many([np.ones((2, 2), "f"), np.arange(2, dtype=np.int32)])
    x, y = queue.dequeue()
    assert [1, 2] == x.tolist() and 7 == y.item()
    x, y = queue.dequeue_many(2)
    assert (2, 2) == tuple(x.shape) and [0, 1] == y.tolist()
    named = td.FIFOQueue(4, [td.float32, td.int32], [(), ()], names=["a", "b"])
    named.enqueue({"a": 1.5, "b": 2})
    assert {"a": 1.5, "b": 2} == {k: v.item() for k, v in named.dequeue().items()}
    with pytest.raises(td.ValueRangeError, match="holds dicts with 'a', 'b'"):
        named.enqueue({"a": 1.5})


def test_elements_are_copied():
    queue = td.FIFOQueue(4, td.float32, (2,))
    x = td.tensor([1.0, 2.0])
    queue.enqueue(x)
    x.fill_(9)
    out = queue.dequeue()
    assert [1, 2] == out.tolist()
    many = td.ones(2, 2)
    queue.enqueue_many(many.mT)
    many.fill_(5)
    assert [[1, 1], [1, 1]] == queue.dequeue_many(2).tolist()


def test_values_of_a_compiled_function_are_computed_first():
    queue = td.FIFOQueue(4, td.float32, (2,))

    @td.compile
    def f(x):
        y = x * 2
        queue.enqueue(y)
        return y + 1

    assert [3, 3] == f(td.ones(2)).tolist()
    assert [2, 2] == queue.dequeue().tolist()


def test_priority():
    queue = td.PriorityQueue(10, td.float32, ())
    for priority, value in [(3, 0.3), (1, 0.1), (2, 0.2), (1, 0.15)]:
        queue.enqueue([priority, value])
    keys, values = queue.dequeue_many(4)
    assert [1, 1, 2, 3] == keys.tolist()
    np.testing.assert_allclose(values.numpy(), [0.1, 0.15, 0.2, 0.3], rtol=1e-6)


def test_shuffling():
    def shuffled(seed):
        queue = td.RandomShuffleQueue(100, 10, td.int64, (), seed=seed)
        queue.enqueue_many(np.arange(50))
        with pytest.raises(td.DeadlineError):
            queue.dequeue_many(45, timeout=0.01)  # ten must stay
        first = queue.dequeue_many(40).tolist()
        queue.close()
        return first + queue.dequeue_many(10).tolist()

    once = shuffled(3)
    assert sorted(once) == list(range(50)) != once
    assert sorted(shuffled(4)) == list(range(50))


def test_padding():
    queue = td.PaddingFIFOQueue(10, [td.float32, td.int64], [(None, 2), ()])
    for n in (1, 3, 2):
        queue.enqueue([np.full((n, 2), n, "f"), n])
    x, n = queue.dequeue_many(3)
    assert (3, 3, 2) == tuple(x.shape) and [1, 3, 2] == n.tolist()
    np.testing.assert_array_equal(x.numpy()[:, :, 0], [[1, 0, 0], [3, 3, 3], [2, 2, 0]])
    plain = td.FIFOQueue(10, td.float32, (None,))
    plain.enqueue([1.0])
    plain.enqueue([1.0, 2.0])
    with pytest.raises(td.ShapeError, match="a PaddingFIFOQueue fills up"):
        plain.dequeue_many(2)


def test_types_and_shapes_are_checked():
    queue = td.FIFOQueue(3, [td.float32, td.int32], [(2, None), ()], name="pairs")
    for row, error, match in [
        ([td.ones(2, 3, dtype=td.float64), 1], td.DTypeError, "component 0 is float64; queue 'pairs' holds float32"),
        (
            [td.ones(3, 3), 1],
            td.ShapeError,
            r"component 0 is \(3, 3\); queue 'pairs' holds elements of shape \(2, None\)",
        ),
        ([td.ones(2, 3), 1.5], td.DTypeError, "holds int32 and is given float"),
        ([td.ones(2, 3)], td.ValueRangeError, "has 2 components, not 1"),
    ]:
        with pytest.raises(error, match=match):
            queue.enqueue(row)
    with pytest.raises(td.ShapeError, match="component 0 has 2 elements and component 1 has 3"):
        queue.enqueue_many([td.ones(2, 2, 1), td.tensor([1, 2, 3], dtype=td.int32)])
    assert 0 == queue.size()
    with pytest.raises(td.ValueRangeError, match="capacity is 0"):
        td.FIFOQueue(0, td.float32)
    with pytest.raises(td.ValueRangeError, match="-1 elements"):
        queue.dequeue_many(-1)
    with pytest.raises(td.ValueRangeError, match="2 dtypes and 1 shapes"):
        td.FIFOQueue(3, [td.float32, td.int32], [()])
    with pytest.raises(td.ShapeError, match="not made of sizes"):
        td.FIFOQueue(3, td.float32, [-3])
    with pytest.raises(td.DTypeError, match="is given None"):
        queue.enqueue([None, 1])
    for timeout in (-1, float("nan"), "soon"):
        with pytest.raises(td.TandemError, match="a timeout is a number of seconds"):
            queue.dequeue(timeout=timeout)
    with pytest.raises(td.ValueRangeError, match="min_after_dequeue is 5"):
        td.RandomShuffleQueue(5, 5, td.float32)


def test_timeouts_and_the_end():
    queue = td.FIFOQueue(1, td.int64, (), name="small")
    with pytest.raises(td.DeadlineError, match=r"dequeue: waited 0\.01 s for queue 'small', which holds 0 of 1"):
        queue.dequeue(timeout=0.01)
    queue.enqueue(1)
    with pytest.raises(TimeoutError):
        queue.enqueue(2, timeout=0.01)
    queue.close()
    assert queue.is_closed()
    with pytest.raises(td.QueueClosedError, match="enqueue: queue 'small' is closed"):
        queue.enqueue(3)
    with pytest.raises(td.QueueClosedError, match=r"not enough elements \(1 left\)"):
        queue.dequeue_many(2)
    assert [1] == queue.dequeue_up_to(5).tolist()
    with pytest.raises(EOFError):
        queue.dequeue_up_to(5)


def test_close_with_and_without_cancelling_what_waits():
    for cancel in (False, True):
        queue = td.FIFOQueue(1, td.int64, ())
        queue.enqueue(1)
        pending = Thread(queue.enqueue, 2)
        until(lambda q=queue: q.counts["producer_waits"])
        queue.close(cancel_pending_enqueues=cancel)
        assert 1 == queue.dequeue().item()
        if cancel:
            with pytest.raises(td.QueueClosedError):
                pending.get()
        else:
            pending.get()
            assert 2 == queue.dequeue().item()


def test_waiting_lets_other_threads_run():
    queue = td.FIFOQueue(1, td.int64, ())
    waiting = Thread(queue.dequeue)
    until(lambda: queue.counts["consumer_waits"])
    assert sum(range(1000)) == 499500  # this thread has the GIL
    queue.enqueue(5)
    assert 5 == waiting.get().item()


@pytest.mark.skipif(not hasattr(signal, "raise_signal"), reason="signals")
def test_waiting_can_be_interrupted():
    queue = td.FIFOQueue(1, td.int64, ())

    def interrupt():
        until(lambda: queue.counts["consumer_waits"])
        os.kill(os.getpid(), signal.SIGINT)

    thread = Thread(interrupt)
    with pytest.raises(KeyboardInterrupt):
        queue.dequeue()
    thread.get()
    queue.enqueue(1)
    assert 1 == queue.dequeue().item()


def test_nothing_is_lost_between_many_threads():
    queue = td.FIFOQueue(5, td.int64, ())
    seen, lock = [], threading.Lock()

    def produce(base):
        for i in range(100):
            queue.enqueue(base + i)

    def consume():
        mine = []
        try:
            while True:
                mine.append(queue.dequeue().item())
        except td.QueueClosedError:
            with lock:
                seen.append(mine)

    consumers = [Thread(consume) for _ in range(4)]
    for t in [Thread(produce, 1000 * k) for k in range(4)]:
        t.get()
    queue.close()
    for t in consumers:
        t.get()
    assert sorted(x for mine in seen for x in mine) == sorted(1000 * k + i for k in range(4) for i in range(100))
    for mine in seen:  # each consumer sees each producer's in order
        for k in range(4):
            part = [x for x in mine if x // 1000 == k]
            assert part == sorted(part)
    assert queue.counts["most"] <= 5


# -- in graphs


@pytest.fixture
def graph():
    with td.Graph() as g:
        yield g


def test_operations_are_nodes(graph):
    queue = td.FIFOQueue(10, [td.float32, td.int32], [(2,), ()])
    x = td.placeholder(td.float32, (2,))
    enqueue = queue.enqueue([x * 2, td.tensor(3, dtype=td.int32)])
    many = queue.enqueue_many([td.zeros(3, 2), td.tensor([1, 2, 3], dtype=td.int32)])
    first, second = queue.dequeue()
    both = first.sum() + second
    size = queue.size()
    batch, _ = queue.dequeue_many(3)
    assert (3, 2) == batch.get_shape()
    session = td.Session(graph)
    session.run(enqueue, {x: [1, 2]})
    session.run(many)
    assert 4 == session.run(size).item()
    assert 9 == session.run(both).item()
    assert [[0, 0]] * 3 == session.run(batch).tolist()
    session.run(queue.close())
    assert session.run(queue.is_closed()).item()
    with pytest.raises(td.QueueClosedError):
        session.run(both)


def test_a_row_is_taken_once_a_run(graph):
    queue = td.FIFOQueue(10, td.float32, ())
    x = queue.dequeue()
    loss = td.exp(x) + x * x
    (slope,) = td.gradients(loss, [x])
    session = td.Session(graph)
    with td.session.graph.outside_graphs():
        queue.enqueue_many([1.0, 2.0])
    value, gradient, given = session.run([loss, slope, x])
    np.testing.assert_allclose([value.item(), gradient.item()], [np.e + 1, np.e + 2], rtol=1e-5)
    assert 1 == given.item() and 1 == queue._queue.size()


def test_errors_when_building(graph):
    queue = td.FIFOQueue(10, td.float32, (2,), name="q")
    with pytest.raises(td.DTypeError, match="component 0 is int64; queue 'q' holds float32"):
        queue.enqueue(td.placeholder(td.int64, (2,)))
    with pytest.raises(td.ShapeError, match=r"component 0 is \(3,\)"):
        queue.enqueue(td.placeholder(td.float32, (3,)))
    with pytest.raises(td.ShapeError, match="made without shapes"):
        td.FIFOQueue(10, td.float32).dequeue()


def test_sizes_that_are_not_known(graph):
    queue = td.PaddingFIFOQueue(10, td.float32, (None,))
    n = td.placeholder(td.int32, ())
    batch = queue.dequeue_up_to(n)
    assert (None, None) == batch.get_shape()
    total = batch.sum(1) * batch.shape[1]
    session = td.Session(graph)
    for k in (1, 2, 3):
        session.run(queue.enqueue(td.ones(k)))
    assert [2, 4] == session.run(total, {n: 2}).tolist()


def test_closing_a_session_ends_what_waits(graph):
    queue = td.FIFOQueue(10, td.float32, ())
    x = queue.dequeue()
    session = td.Session(graph)
    waiting = [Thread(session.run, x * 2), Thread(session.run, x)]
    until(lambda: queue.counts["consumer_waits"] == 2)
    session.close()
    for t in waiting:
        with pytest.raises(td.CancelledError):
            t.get()


def test_queues_in_loops_wired_by_hand(graph):
    """Sums elements until a negative one comes; producers fill the queue while the loop waits."""
    ops = td.graph_ops
    queue = td.FIFOQueue(2, td.float32, ())
    total = ops.merge([ops.enter(td.tensor(0.0), "sum")]).output
    last = ops.merge([ops.enter(td.tensor(0.0), "sum")]).output
    go_on = ops.loop_cond(last >= 0)
    total_out, total_body = ops.switch(total, go_on)
    _, last_body = ops.switch(last, go_on)
    with td.control_dependencies([last_body]):
        x = queue.dequeue()
    ops.close_loop(total, total_body + td.maximum(x, 0))
    ops.close_loop(last, x)
    result = ops.exit(total_out)
    session = td.Session(graph)
    running = Thread(session.run, result)
    with td.session.graph.outside_graphs():
        for value in [1.0, 2.5, 3.0, -1.0]:
            queue.enqueue(value)
    assert 6.5 == running.get().item()
    assert queue.counts["most"] <= 2


def test_input_pipeline_overlaps_with_training_and_is_held_back(graph):
    """Reading -> decoding -> batches -> training, each in its own threads. Counters show that reading goes on while a step is
    held up, and that it stops when the queues are full."""
    raw = td.FIFOQueue(4, td.float32, (3,), name="raw")
    batches = td.FIFOQueue(2, td.float32, (3,), name="decoded")
    read, in_step, go_on = [0], threading.Event(), threading.Event()

    def reader():
        if read[0] == 60:
            raise td.QueueClosedError("reader", "no more files")
        read[0] += 1
        raw.enqueue(td.full((3,), float(read[0])))

    decode = batches.enqueue(td.tanh(raw.dequeue() * 0.1))
    x = batches.dequeue_many(2)
    w = td.Variable(td.zeros(3), name="w")
    init = td.global_variables_initializer()
    loss = td.square(x @ w - 1).mean()
    step = td.optim.SGD([w], lr=0.1).minimize(loss)

    def hold(a):
        in_step.set()
        go_on.wait(300)
        return a

    held = td.py_func(hold, [loss], td.float32, ())
    session, coordinator = td.Session(graph), td.Coordinator()
    session.run(init)
    with td.session.graph.outside_graphs():
        threads = td.QueueRunner(raw, [reader]).create_threads(coord=coordinator, daemon=True, start=True)
        threads += td.QueueRunner(batches, [decode] * 2).create_threads(session, coordinator, daemon=True, start=True)
    training = Thread(session.run, [held, step])
    assert in_step.wait(300)
    # The step stands still; reading and decoding go on until everything is full, and no further:
    # 2 rows in the step, 2 decoded ones waiting, 2 in the hands of decoders, 4 raw ones, and one in the reader's hands.
    until(lambda: read[0] == 11)
    until(lambda: raw.counts["producer_waits"] >= 1 and batches.counts["producer_waits"] >= 1)
    time.sleep(0.05)
    assert read[0] == 11
    assert raw.counts["most"] <= 4 and batches.counts["most"] <= 2
    go_on.set()
    training.get()
    losses = []
    try:
        while True:
            losses.append(session.run([loss, step])[0].item())
    except td.QueueClosedError:
        pass
    assert 29 == len(losses) and losses[-1] < losses[0] * 0.5
    coordinator.join(threads)
