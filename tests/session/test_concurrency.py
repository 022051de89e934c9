"""Many runs at once on one graph, in the shape of a training system: input, training, checkpoint and evaluation threads."""

import faulthandler
import threading
import time

import numpy as np
import pytest

import tandem as td


@pytest.fixture(autouse=True)
def no_deadlocks():
    faulthandler.dump_traceback_later(150, exit=True)  # a deadlock must not hang the suite
    yield
    faulthandler.cancel_dump_traceback_later()


class Team:
    """Threads whose first exception `join` raises."""

    def __init__(self):
        self.threads, self.errors = [], []

    def start(self, f, *args):
        def work():
            try:
                f(*args)
            except BaseException as error:
                self.errors.append(error)

        self.threads.append(threading.Thread(target=work, daemon=True))
        self.threads[-1].start()

    def join(self):
        for t in self.threads:
            t.join(300)
            assert not t.is_alive()
        if self.errors:
            raise self.errors[0]


def test_a_training_system(tmp_path):
    steps, trainers = 40, 3
    with td.Graph() as graph:
        examples = td.RandomShuffleQueue(64, 8, [td.float32, td.float32], [(4,), ()], seed=1, name="examples")
        x_in, y_in = td.placeholder(td.float32, (None, 4)), td.placeholder(td.float32, (None,))
        feed = examples.enqueue_many([x_in, y_in])
        x, y = examples.dequeue_many(8)
        w = td.Variable(td.zeros(4), name="w")
        mirror = td.Variable(td.zeros(4), trainable=False, name="mirror")
        count = td.Variable(td.tensor(0, dtype=td.int32), trainable=False, name="count")
        loss = td.square(x @ w - y).mean()
        step = td.optim.SGD([w], lr=0.05).minimize(loss)
        with td.control_dependencies([step]):
            train = td.group(mirror.assign(w + 0), count.assign_add(td.tensor(1, dtype=td.int32)))
        held_out = td.placeholder(td.float32, (None, 4))
        predicted = held_out @ w
        same = (w - mirror).abs().max()  # written in one run, so never seen apart
        init = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(init)
    truth = np.array([1, -2, 3, 0.5], "f")
    done = threading.Event()
    seen = {"checkpoints": 0, "evaluations": 0, "apart": []}

    def read(seed):
        rng = np.random.default_rng(seed)
        try:
            while True:
                a = rng.standard_normal((16, 4)).astype("f")
                session.run(feed, {x_in: a, y_in: a @ truth})
        except td.QueueClosedError:
            pass

    def training():
        for _ in range(steps):
            session.run(train)

    def checkpointing():
        saver = td.Saver()
        while not done.is_set():
            path = tmp_path / f"model{seen['checkpoints']}.safetensors"
            saver.save(session, str(path))
            other = td.Session(graph)
            saver.restore(other, str(path))
            if other.run(same).item() != 0:
                seen["apart"].append("checkpoint")
            seen["checkpoints"] += 1

    def evaluating():
        a = np.eye(4, dtype="f")
        while not done.is_set():
            apart, got = session.run([same, predicted], {held_out: a})
            if apart.item() != 0 or got.shape != (4,):
                seen["apart"].append("evaluation")
            seen["evaluations"] += 1

    inputs, others, work = Team(), Team(), Team()
    for k in range(2):
        inputs.start(read, k)
    others.start(checkpointing)
    others.start(evaluating)
    for _ in range(trainers):
        work.start(training)
    work.join()
    done.set()
    others.join()
    examples.close(cancel_pending_enqueues=True)
    inputs.join()
    assert steps * trainers == session.run(count).item()  # no update was lost
    assert seen["apart"] == [] and seen["checkpoints"] and seen["evaluations"]
    np.testing.assert_allclose(session.run(w).numpy(), truth, atol=0.05)
    counts = examples.counts
    assert counts["dequeued"] == 8 * steps * trainers and counts["most"] <= 64


def test_overlapping_subgraphs_with_loops_and_queues():
    """Runs of hand-wired loops that dequeue, enqueue and write, beside runs of ordinary programs on the same variables."""
    ops = td.graph_ops
    with td.Graph() as graph:
        requests = td.FIFOQueue(3, td.int32, (), name="requests")
        answers = td.FIFOQueue(3, [td.int32, td.int32], [(), ()], name="answers")
        total = td.Variable(td.tensor(0, dtype=td.int32), name="total")
        zero = td.tensor(0, dtype=td.int32)
        n = requests.dequeue()
        bound = ops.enter(n, "sum", is_constant=True)
        i = ops.merge([ops.enter(zero, "sum")]).output
        s = ops.merge([ops.enter(zero, "sum")]).output
        going = ops.loop_cond(i < bound)
        _, i_body = ops.switch(i, going)
        s_out, s_body = ops.switch(s, going)
        ops.close_loop(i, i_body + 1)
        ops.close_loop(s, s_body + i_body)
        result = ops.exit(s_out)
        serve = answers.enqueue([n, result + 0 * total.assign_add(result)])
        ask = td.placeholder(td.int32, ())
        request = requests.enqueue(ask)
        asked, answered = answers.dequeue()
        doubled = total * 2
        init = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(init)
    count, servers = 25, 3
    got, lock = [], threading.Lock()

    def asking(k):
        for j in range(count):
            session.run(request, {ask: k * 7 + j})

    def serving():
        try:
            while True:
                session.run(serve)
        except td.QueueClosedError:
            pass

    def collecting():
        try:
            while True:
                a, b = session.run([asked, answered])
                with lock:
                    got.append((a.item(), b.item()))
        except td.QueueClosedError:
            pass

    stop = threading.Event()

    def looking():
        while not stop.is_set():
            assert session.run(doubled).item() % 2 == 0

    clients, backs, ends, looks = Team(), Team(), Team(), Team()
    for _ in range(servers):
        backs.start(serving)
    for _ in range(2):
        ends.start(collecting)
    looks.start(looking)
    for k in range(3):
        clients.start(asking, k)
    clients.join()
    requests.close()
    backs.join()
    answers.close()
    ends.join()
    stop.set()
    looks.join()
    expected = sorted(k * 7 + j for k in range(3) for j in range(count))
    assert expected == sorted(a for a, _ in got)
    assert all(b == a * (a - 1) // 2 for a, b in got)
    assert sum(a * (a - 1) // 2 for a in expected) == session.run(total).item()


def test_runs_compile_and_close_at_any_time():
    """New programs, run and evicted by many threads, while the session is closed in the middle."""
    with td.Graph() as graph:
        x = td.placeholder(td.float32, ())
        v = td.Variable(td.tensor(1.0))
        tensors = [x * k + v for k in range(8)]
        init = td.global_variables_initializer()
    session = td.Session(graph)
    session.max_programs = 4
    session.run(init)
    ran = []

    def work(k):
        for j in range(1000):
            try:
                assert (j % 8) * 2.0 + 1 == session.run(tensors[j % 8], {x: 2.0}).item()
                ran.append(k)
            except (td.ValueRangeError, td.CancelledError) as error:
                if "closed" not in str(error) and "no value" not in str(error):
                    raise
                return

    team = Team()
    for k in range(4):
        team.start(work, k)
    end = time.monotonic() + 300
    while len(ran) < 100 and time.monotonic() < end:
        time.sleep(0.005)
    session.close()
    team.join()
    assert len(ran) >= 100 and session.num_programs <= 4
