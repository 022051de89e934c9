"""Steps of which the calling thread runs a part itself: Note [Own part] in session.py."""

import signal
import socket
import threading
import time

import pytest

import tandem as td
from tandem.distributed.cluster import rpc, task
from tandem.distributed.cluster.peers import Lookout
from tests.distributed.cluster.test_session import PS0, W0, W1, cluster, empty  # noqa: F401


def waiting_graph():
    """A step whose part on W1, the own one, waits for W0, which waits for a queue."""
    with td.Graph() as graph:
        with td.device(W0):
            queue = td.FIFOQueue(2, td.float32, (), name="never")
            there = queue.dequeue() * 2
        with td.device(W1):
            y = there + 1
            held = td.FIFOQueue(2, td.float32, (), name="held")
            add = held.enqueue(td.placeholder(td.float32, (), name="x"))
            first = held.dequeue()
    return graph, queue, y, add, first


def test_the_calling_thread_runs_the_part_of_a_task_of_its_process(cluster, monkeypatch):  # noqa: F811
    threads = []
    run = task.Task.run
    monkeypatch.setattr(task.Task, "run", lambda *a: (threads.append(threading.current_thread()), run(*a))[1])
    with td.Graph() as graph:
        with td.device(W0):
            x = td.ones(()) * 6
        with td.device(W1):
            y = x + 1
    session = td.Session(graph, target=cluster)
    assert session.run(y).item() == 7.0
    assert len(threads) == 2 and threading.current_thread() in threads
    threads.clear()
    session.run(y, timeout=300.0)
    assert threading.current_thread() not in threads  # somebody must watch the time


def test_another_task_that_fails_ends_the_own_part(cluster):  # noqa: F811
    graph, _, y, *_ = waiting_graph()
    session = td.Session(graph, target=cluster)
    timer = threading.Timer(0.2, lambda: cluster.engine.tasks[W0].queues["never"]._queue.close(True))
    timer.start()
    with pytest.raises(td.TandemError, match="never"):
        session.run(y)
    assert cluster.describe(W1)["steps"] == 0


def test_another_task_that_dies_ends_the_own_part(cluster):  # noqa: F811
    graph, _, y, *_ = waiting_graph()
    session = td.Session(graph, target=cluster)
    timer = threading.Timer(0.2, cluster.kill, [W0])
    timer.start()
    try:
        with pytest.raises(td.TaskError, match=W0):
            session.run(y)
    finally:
        timer.join()
        cluster.restart(W0)


def test_a_task_that_ends_does_not_blame_the_controller(cluster):  # noqa: F811
    """Its connections break before its steps do."""
    made = cluster.engine.tasks[W0]
    steps = [task.Step(made, f"c{i}/1", made.rendezvous.step(f"c{i}/1")) for i in range(2)]
    made._steps.update({"c0/1": steps[0], "c1/1": steps[1]})
    made._controllers.update({"first": "c0", "second": "c1"})
    made.left("first")
    assert isinstance(steps[0].reason, td.CancelledError)
    made.closed.set()
    made.left("second")
    assert isinstance(steps[1].reason, td.TaskError) and steps[1].reason.task == W0
    made._steps.clear()
    cluster.restart(W0)


def test_a_task_that_is_closed_under_its_own_part_is_gone(cluster):  # noqa: F811
    graph, _, y, *_ = waiting_graph()
    session = td.Session(graph, target=cluster)
    timer = threading.Timer(0.2, cluster.kill, [W1])
    timer.start()
    try:
        with pytest.raises(td.TaskError, match=f"{W1} is gone"):
            session.run(y)
    finally:
        timer.join()
        cluster.restart(W1)


def test_an_interrupt_ends_the_step_everywhere(cluster):  # noqa: F811
    graph, _, y, *_ = waiting_graph()
    session = td.Session(graph, target=cluster)
    timer = threading.Timer(0.2, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        session.run(y)
    end = time.monotonic() + 300
    while cluster.describe(W0)["steps"] and time.monotonic() < end:
        time.sleep(0.01)
    assert cluster.describe(W0)["steps"] == cluster.describe(W1)["steps"] == 0


def test_what_is_fed_and_fetched_is_the_callers_own(cluster):  # noqa: F811
    graph, *_, add, first = waiting_graph()
    session = td.Session(graph, target=cluster)
    given = td.tensor(1.0)
    session.run(add, {"x": given})
    given.fill_(5.0)
    assert session.run(first).item() == 1.0
    with td.Graph() as graph, td.device(W1):
        v = td.Variable([1.0, 2.0], name="v")
        double = v.assign(v * 2)
        init = td.global_variables_initializer()
    session = td.Session(graph, target=cluster)
    session.run(init)
    found = session.run(v)
    session.run(double)
    assert found.tolist() == [1.0, 2.0]
    found.fill_(9.0)
    assert session.run(v).tolist() == [2.0, 4.0]


def test_programs_that_both_tasks_have_let_go_of_are_sent_again(cluster):  # noqa: F811
    with td.Graph() as graph:
        with td.device(W0):
            x = td.ones(()) * 6
        with td.device(W1):
            y = x + 1
    session = td.Session(graph, target=cluster)
    assert session.run(y).item() == 7.0
    for name in (W0, W1):
        cluster.engine.tasks[name].programs.clear()
    assert session.run(y).item() == 7.0


def test_the_lookout_ends_when_there_is_nothing_to_look_at(monkeypatch):
    monkeypatch.setattr(Lookout, "_PAUSE", 0.001)
    monkeypatch.setattr(Lookout, "_IDLE", 3)
    made, seen = Lookout(), threading.Event()

    class Answers:
        lock = threading.Lock()

        def advance(self, timeout):
            seen.set()

    answers = Answers()
    made.begin(answers)
    thread = made._thread
    assert seen.wait(300)
    made.end(answers)
    thread.join(300)
    assert not thread.is_alive() and made._thread is None


class Echo:
    notices: dict = {}

    def __init__(self):
        self.calls = {"echo": lambda connection, arguments, tensors: (arguments, tensors)}

    def left(self, connection):
        pass


def test_servers_of_this_host_are_reached_by_a_socket_that_carries_shared_memory():
    server = rpc.Server(Echo(), "tcp:127.0.0.1:0", b"key")
    try:
        connection = rpc.connect(server.address, b"key")
        assert connection.socket.family == socket.AF_UNIX
        x = td.arange(100_000.0)
        connection.send(["echo", 1], [x])
        (_, value), (back,) = connection.receive()
        assert value == [1] and bool((back == x).all())
        assert connection.received < 1000
        connection.close()
        with pytest.raises(rpc.Closed):
            wrong = rpc.connect(server.address, b"another key")
            wrong.send(["echo"])
            wrong.receive()
    finally:
        server.close()
    with pytest.raises(rpc.Closed):
        rpc.connect(server.address, b"key")


def test_where_the_near_name_is_taken_there_is_the_port(monkeypatch):
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(f"\0tandem-task-{port}")  # nobody listens
        server = rpc.Server(Echo(), f"tcp:127.0.0.1:{port}")
        try:
            connection = rpc.connect(server.address)
            assert connection.socket.family == socket.AF_INET
            connection.close()
        finally:
            server.close()
    server = rpc.Server(Echo(), f"tcp:127.0.0.1:{port}")
    try:
        monkeypatch.setattr(rpc.os, "geteuid", lambda: 12345)  # the server is another user's
        connection = rpc.connect(server.address)
        assert connection.socket.family == socket.AF_INET
        connection.close()
    finally:
        server.close()


def test_a_controller_that_attaches_again_keeps_its_steps(cluster):  # noqa: F811
    """As it does after a failure, to see whether the task was started again."""
    graph, queue, y, *_ = waiting_graph()
    with graph:
        add = queue.enqueue(td.tensor(3.0))
    session, found = td.Session(graph, target=cluster), []
    waiting = threading.Thread(target=lambda: found.append(session.run(y)))
    waiting.start()
    while not all(d["steps"] for t, d in cluster.describe().items() if t in (W0, W1)):
        time.sleep(0.001)
    cluster.suspect(W0)
    cluster.check([W0])
    time.sleep(0.1)  # for the task to see that the first connection is closed
    session.run(add)
    waiting.join(300)
    assert [t.item() for t in found] == [7.0]
