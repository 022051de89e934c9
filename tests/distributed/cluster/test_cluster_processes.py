"""Tasks as processes: shared memory, deaths, restarts, controllers that come and go; servers of classic programs."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import tandem as td
from tandem.distributed.cluster import peers
from tests.distributed.cluster.test_session import PS0, W0, W1, linear

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster():
    with td.distributed.Cluster({"ps": 2, "worker": 2}, engine="processes", threads=1) as made:
        yield made


def test_training_is_that_of_one_process(cluster):
    graph, x, (w, b), y, loss, step, init = linear()

    def use(session):
        session.run(init)
        losses = [session.run([loss, step], {x: np.ones((n, 3))})[0] for n in (2, 5, 1)]
        return [*losses, *session.run([w, b, y], {x: [[1, 2, 3]]})]

    for a, c in zip(use(td.Session(graph, soft_placement=True)), use(td.Session(graph, target=cluster)), strict=True):
        np.testing.assert_array_equal(a.numpy(), c.numpy())


def test_large_tensors_go_by_shared_memory(cluster):
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (None, 1000), name="x")
        with td.device(W0):
            a = x * 2.0
        with td.device(W1):
            b = a + 1.0
    session = td.Session(graph, target=cluster)
    data = np.random.default_rng(0).standard_normal((500, 1000)).astype(np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(data * 2 + 1, session.run(b, {x: data}).numpy())
    assert cluster.peer(W0).bytes_sent < 10_000  # the feed went by shared memory
    assert cluster.describe(W0)["counts"]["bytes_sent"] == 3 * data.nbytes


def test_a_task_that_dies_is_named_and_can_be_started_again(cluster):
    graph, x, (w, b), y, _, step, init = linear()
    session = td.Session(graph, target=cluster)
    session.run(init)
    cluster.kill(W0)
    with pytest.raises(td.TaskError, match=W0) as caught:
        session.run(y, {x: [[1, 2, 3]]})
    assert caught.value.task == W0
    assert cluster.alive(1.0) == {"/job:ps/task:0": True, "/job:ps/task:1": True, W0: False, W1: True}
    cluster.restart(W0)
    np.testing.assert_array_equal([[7, 8]], session.run(y, {x: [[1, 2, 3]]}).numpy())  # parameters were on the servers
    session.run(step, {x: [[1, 2, 3]]})
    cluster.kill(PS0)
    cluster.restart(PS0)
    with pytest.raises(td.ValueRangeError, match=r"'w:0'.*has no value"):
        session.run(y, {x: [[1, 2, 3]]})
    session.load(w, np.ones((3, 2)))
    session.run([y, b], {x: [[1, 2, 3]]})


def test_a_death_in_the_middle_of_a_step_ends_it_everywhere(cluster):
    with td.Graph() as graph:
        with td.device(PS0):
            queue = td.FIFOQueue(2, td.float32, (), name="empty")
        with td.device(W0):
            y = queue.dequeue() * 2.0
        with td.device(W1):
            z = y + 1.0
    session = td.Session(graph, target=cluster)
    errors = []

    def run():
        try:
            session.run(z)
        except td.TaskError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not cluster.describe(W1)["steps"]:
        time.sleep(0.01)
    cluster.kill(W0)
    thread.join(300)
    assert not thread.is_alive() and errors[0].task == W0
    end = time.monotonic() + 300
    while any(cluster.describe(t)["steps"] for t in (PS0, W1)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(cluster.describe(t)["steps"] for t in (PS0, W1))


def test_a_task_that_is_stuck_is_named_by_a_time_out(cluster, monkeypatch):
    monkeypatch.setattr(peers, "_GRACE", 1.0)
    graph, x, _, y, _, _, init = linear()
    session = td.Session(graph, target=cluster)
    session.run(init)
    session.run(y, {x: [[1, 2, 3]]})
    stuck = cluster.engine.processes[PS0]
    os.kill(stuck.pid, signal.SIGSTOP)
    threads = pathlib.Path(f"/proc/{stuck.pid}/task")
    while any(" T " not in (t / "stat").read_text() for t in threads.iterdir()):
        time.sleep(0.01)
    try:
        with pytest.raises(td.DeadlineError, match=PS0):
            session.run(y, {x: [[1, 2, 3]]}, timeout=0.5)
    finally:
        os.kill(stuck.pid, signal.SIGCONT)
    np.testing.assert_array_equal([[7, 8]], session.run(y, {x: [[1, 2, 3]]}).numpy())


def test_a_controller_that_dies_is_replaced(cluster):
    graph, *_ = linear()
    program = f"""
        import os, tandem as td
        from tests.distributed.cluster.test_session import linear, PS0, W0
        cluster = td.distributed.Cluster.connect({cluster.addresses!r}, {cluster.key!r})
        graph, x, (w, b), y, loss, step, init = linear()
        session = td.Session(graph, target=cluster)
        session.run(init)
        session.load(b, [5.0, 6.0])
        with td.Graph() as other:
            with td.device(PS0):
                queue = td.FIFOQueue(1, td.float32, (), name="nothing")
            with td.device(W0):
                got = queue.dequeue() + 1.0
        import threading
        threading.Timer(1.0, lambda: os._exit(9)).start()
        td.Session(other, target=cluster).run(got)
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False)
    assert ended.returncode == 9
    session = td.Session(graph, target=cluster)
    assert session.run("b:0").tolist() == [5.0, 6.0]
    end = time.monotonic() + 300
    while any(d["steps"] for d in cluster.describe().values()) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(d["steps"] for d in cluster.describe().values())


def test_who_does_not_know_the_key_is_refused(cluster):
    with pytest.raises(td.TaskError, match="cannot be reached"):
        td.distributed.Cluster.connect(cluster.addresses, b"guess")


def test_a_classic_program_of_servers_and_workers(tmp_path):
    """Between-graph replication: each worker has its graph and its session; variables are shared on the server."""
    program = tmp_path / "train.py"
    program.write_text(
        textwrap.dedent("""
        import sys
        import tandem.v1 as tf

        ports, job, index = sys.argv[1].split(","), sys.argv[2], int(sys.argv[3])
        cluster = tf.train.ClusterSpec({"ps": ["localhost:" + ports[0]], "worker": ["localhost:" + p for p in ports[1:]]})
        server = tf.train.Server(cluster, job_name=job, task_index=index)
        if job == "ps":
            server.join()
        with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % index, cluster=cluster)):
            x = tf.placeholder(tf.float32, [None, 2])
            w = tf.Variable(tf.zeros([2, 1]), name="w")
            count = tf.Variable(0, trainable=False, name="count")
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - tf.reduce_sum(x, 1, keep_dims=True)))
            train = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=count)
            init = tf.global_variables_initializer()
        with tf.Session(server.target) as session:
            if index == 0:
                session.run(init)
            else:
                import time
                while True:
                    try:
                        session.run([count, w])  # until all has a value
                        break
                    except ValueError:
                        time.sleep(0.05)
            for k in range(100):
                session.run(train, {x: [[1.0, 2.0], [2.0, 1.0], [k % 3, 1.0]]})
            while session.run(count) < 200:
                pass
            print("done", session.run(count), session.run(loss, {x: [[3.0, 4.0]]}), flush=True)
        """)
    )
    import socket

    sockets = [socket.socket() for _ in range(3)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = ",".join(str(s.getsockname()[1]) for s in sockets)
    for s in sockets:
        s.close()
    start = lambda job, index: subprocess.Popen(
        [sys.executable, str(program), ports, job, str(index)], stdout=subprocess.PIPE, text=True
    )
    server = start("ps", 0)
    workers = [start("worker", 0), start("worker", 1)]
    try:
        for worker in workers:
            out, _ = worker.communicate(timeout=300)
            assert worker.returncode == 0
            done, count, loss = out.split()
            assert (done, int(count)) == ("done", 200) and float(loss) < 0.1
    finally:
        for process in (server, *workers):
            process.kill()
            process.wait()


def test_tasks_have_the_calls_of_parameter_servers_whoever_imports_what():
    """Parts of td.distributed are imported when first used: a task has all calls from its beginning."""
    code = (
        "import tandem as td\n"
        "for engine in ('threads', 'processes'):\n"
        "    cluster = td.distributed.Cluster({'ps': 1}, engine=engine)\n"
        "    model = td.nn.Linear(2, 1)\n"
        "    td.distributed.ParameterServer(model, td.optim.SGD(model.parameters(), lr=0.1), cluster=cluster)\n"
        "    cluster.close()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
