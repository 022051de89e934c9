"""Threads that stop together."""

import threading
import time

import pytest

import tandem as td

# -- in graphs


@pytest.fixture
def graph():
    with td.Graph() as g:
        yield g


# -- coordinators


def test_threads_stop_together_and_the_first_error_comes_out():
    coordinator = td.Coordinator()
    stopped = []

    def quiet():
        with coordinator.stop_on_exception():
            while not coordinator.should_stop():
                time.sleep(0.001)
            stopped.append(1)

    def fails():
        with coordinator.stop_on_exception():
            raise KeyError("broken")

    threads = [threading.Thread(target=f) for f in (quiet, quiet, fails)]
    for t in threads:
        t.start()
    with pytest.raises(KeyError, match="broken"):
        coordinator.join(threads)
    assert [1, 1] == stopped and coordinator.joined
    coordinator.clear_stop()
    assert not coordinator.should_stop()


def test_threads_that_do_not_stop_are_named():
    coordinator = td.Coordinator()
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="stubborn", daemon=True)
    thread.start()
    coordinator.request_stop()
    with pytest.raises(td.DeadlineError, match="stubborn"):
        coordinator.join([thread], stop_grace_period_secs=0.01)
    release.set()


def test_queue_runner_of_a_graph(graph):
    queue = td.FIFOQueue(3, td.float32, ())
    count = td.Variable(td.tensor(0.0), trainable=False)
    enqueue = queue.enqueue(count.assign_add(1.0))
    runner = td.QueueRunner(queue, [enqueue] * 2)
    td.session.add_queue_runner(runner)
    x = queue.dequeue_many(4)
    init = td.global_variables_initializer()
    session, coordinator = td.Session(graph), td.Coordinator()
    session.run(init)
    threads = td.session.start_queue_runners(session, coordinator)
    got = [v for _ in range(5) for v in session.run(x).tolist()]
    assert len(set(got)) == 20  # no update was lost: each row is another number
    coordinator.request_stop()
    coordinator.join(threads)
    assert queue._queue.closed


def test_queue_runner_of_functions_and_its_errors():
    queue = td.FIFOQueue(100, td.int64, ())
    numbers = iter(range(7))

    def produce():
        queue.enqueue(next(numbers))

    coordinator = td.Coordinator(clean_stop_exception_types=(td.QueueClosedError, StopIteration))
    threads = td.QueueRunner(queue, [produce]).create_threads(coord=coordinator, start=True)
    coordinator.join(threads)
    assert list(range(7)) == queue.dequeue_up_to(100).tolist()  # closed by the runner

    def broken():
        raise OSError("no such file")

    coordinator = td.Coordinator()
    runner = td.QueueRunner(td.FIFOQueue(2, td.int64, ()), [broken])
    with pytest.raises(OSError, match="no such file"):
        coordinator.join(runner.create_threads(coord=coordinator, start=True))
    alone = td.QueueRunner(td.FIFOQueue(2, td.int64, ()), [broken])
    for t in alone.create_threads(start=True):
        t.join()
    assert isinstance(alone.exceptions_raised[0], OSError)
