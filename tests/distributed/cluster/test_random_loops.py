"""Loops and branches made at random, their nodes on any task, run by several threads at once while other steps fail or end early:
each gives what one process gives."""

import threading

import numpy as np
import pytest

import tandem as td
from tests.distributed.cluster.test_session import PS0, PS1, W0, W1, cluster, empty  # noqa: F401

TASKS = [PS0, PS1, W0, W1]
ops = td.graph_ops


class RandomFlow:
    """result: of nested branches and loops over values of shape (3,); count: a variable that loops add to."""

    def __init__(self, seed: int, depth: int = 3):
        self.random = np.random.default_rng(seed)
        self.writes = 0
        with td.Graph() as self.graph:
            self.x = td.placeholder(td.float32, (3,), name="x")
            self.n = td.placeholder(td.int64, (), name="n")
            with self._somewhere():
                self.w = td.Variable(self._numbers(), name=f"w{seed}")
            with self._somewhere():
                self.count = td.Variable(0.0, name=f"count{seed}")
            self.result = self._mixed(self._grown([self.x], depth))
            self.init = td.global_variables_initializer()
        self.feeds = [
            {self.x: self.random.standard_normal(3).astype(np.float32), self.n: int(self.random.integers(0, 5))}
            for _ in range(3)
        ]

    def _any(self, items):
        return items[self.random.integers(len(items))]

    def _somewhere(self):
        return td.device(self._any(TASKS))

    def _numbers(self):
        return td.tensor(self.random.standard_normal(3), dtype=td.float32)

    def _mixed(self, values: list):
        """All of some values in one, so that none is left out."""
        with self._somewhere():
            total = td.tanh(values[0])
            for v in values[1:]:
                total = total + td.sin(v)
        return total

    def _grown(self, values: list, depth: int) -> list:
        values = list(values)
        for _ in range(self.random.integers(2, 5)):
            kind = self.random.integers(6 if depth else 3)
            if kind == 3:
                values.append(self._branch(values, depth - 1))
            elif kind >= 4:
                values += self._loop(values, depth - 1)
            else:
                a, b = self._any(values), self._any(values)
                with self._somewhere():
                    made = (a + td.tanh(b), a * 0.5 - b, td.sin(a) * self.w)[kind]
                values.append(made)
        return values

    def _branch(self, values: list, depth: int):
        with self._somewhere():
            taken = self._any(values).sum() > self.random.standard_normal()

        def side():
            return self._mixed(self._grown(values, depth))

        with self._somewhere():
            return ops.cond(taken, side, side)

    def _loop(self, values: list, depth: int) -> list:
        own = [self._any(values) for _ in range(self.random.integers(1, 3))]
        predicate_at, body_at = self._any(TASKS), self._any(TASKS)
        writes = self.random.random() < 0.3
        with td.device(body_at):
            zero = td.tensor(0) * self.n
            own = [v * 1.0 for v in own]

        def going(i, *_):
            with td.device(predicate_at):
                return i < self.n

        def body(i, *own):
            grown = self._grown([*own, *values[:2]], depth)
            waits = []
            if writes:
                with td.colocate_with(self.count):
                    waits = [self.count.assign_add(1.0)]
            with td.control_dependencies(waits):
                return [i + 1, *(td.tanh(v) for v in [*own[:-1], self._mixed(grown)])]

        with td.device(body_at):
            return ops.while_loop(going, body, [zero, *own])[1:]

    def run(self, session) -> list:
        session.run(self.init)
        found = [session.run(self.result, feed, timeout=300) for feed in self.feeds]
        return [*found, session.run(self.count)]


def compare(expected: list, found: list, seed: int):
    for k, (a, b) in enumerate(zip(expected, found, strict=True)):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5, err_msg=f"seed {seed}, value {k}")


def alone(made: RandomFlow) -> list:
    return made.run(td.Session(made.graph, soft_placement=True))


@pytest.mark.parametrize(("seeds", "depth"), [(range(2), 1), pytest.param(range(100, 140), 3, marks=pytest.mark.slow)])
def test_random_loops_and_branches_give_what_one_process_gives(seeds, depth, cluster):  # noqa: F811
    for seed in seeds:
        made = RandomFlow(seed, depth)
        compare(alone(made), made.run(td.Session(made.graph, target=cluster)), seed)


class Disturbance:
    """Steps that fail on some task, and steps that wait in vain and are given up, until `over`."""

    def __init__(self, cluster):  # noqa: F811
        self.over = threading.Event()
        self.failed, self.errors = 0, []
        with td.Graph() as graph:
            bad = td.placeholder(td.float32, (None,), name="bad")
            with td.device(PS0):
                queue = td.FIFOQueue(1, td.float32, (3,), name="nothing comes")
            with td.device(W0):
                ahead = td.sin(bad)
            with td.device(W1):
                wrong = td.reshape(ahead, (2, 2))
            with td.device(PS1):
                wrong = wrong * 2.0
            with td.device(W0):
                waits = queue.dequeue() + ahead.sum()
        self.session = td.Session(graph, target=cluster)
        fails = lambda: self.session.run(wrong, {bad: [1.0, 2.0, 3.0]})
        waits = lambda waits=waits: self.session.run(waits, {bad: [1.0]}, timeout=0.05)
        self.threads = [
            threading.Thread(target=self._again, args=a) for a in ((fails, td.ShapeError), (waits, td.DeadlineError))
        ]

    def _again(self, step, expected):
        try:
            while not self.over.is_set():
                with pytest.raises(expected):
                    step()
                self.failed += 1
        except BaseException as error:
            self.errors.append(error)

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *exc):
        self.over.set()
        for t in self.threads:
            t.join(300)


@pytest.mark.parametrize("rounds", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_steps_at_once_are_kept_apart_from_each_other_and_from_those_that_fail(rounds, cluster):  # noqa: F811
    flows = [RandomFlow(200 + k, depth=1 if rounds == 1 else 3) for k in range(4)]
    expected = [alone(made) for made in flows]
    errors = []

    def work(k):
        try:
            session = td.Session(flows[k].graph, target=cluster)
            for _ in range(rounds):
                compare(expected[k], flows[k].run(session), 200 + k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(flows))]
    with Disturbance(cluster) as others:
        for t in threads:
            t.start()
        for t in threads:
            t.join(300)
    assert not errors and not others.errors, [*errors, *others.errors]
    assert others.failed > 0 and not any(t.is_alive() for t in threads)
    found = cluster.describe()
    assert all(d["steps"] == 0 for d in found.values()), found


@pytest.mark.parametrize("count", [9, pytest.param(200, marks=pytest.mark.slow)])
def test_a_loop_fills_a_queue_of_another_task_while_a_loop_of_a_third_empties_it(count, cluster):  # noqa: F811
    """The queue has room for two rows: the loops wait for each other."""
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (3,), name="x")
        n = td.placeholder(td.int64, (), name="n")
        with td.device(PS0):
            queue = td.FIFOQueue(2, td.float32, (3,), name=f"rows{count}")

        def put(i, v):
            with td.device(W0):
                now = td.sin(v) + v
            with td.control_dependencies([queue.enqueue(now)]):
                return [i + 1, now * 1.0]

        def take(i, total):
            row = queue.dequeue()
            with td.device(W1):
                return [i + 1, td.tanh(total) * 0.5 + row]

        with td.device(W0):
            _, last = ops.while_loop(lambda i, v: i < n, put, [td.tensor(0) * n, x * 1.0])
        with td.device(W1):
            _, total = ops.while_loop(lambda i, v: i < n, take, [td.tensor(0) * n, x * 0.0])
        size = queue.size()
    start, found = np.array([0.1, 0.2, 0.3], dtype=np.float32), {}

    def work(session, fetch):
        found[fetch] = session.run(fetch, {x: start, n: count}, timeout=300)

    session = td.Session(graph, target=cluster)
    threads = [threading.Thread(target=work, args=(session, fetch)) for fetch in (last, total)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    v, expected = start.copy(), np.zeros(3, dtype=np.float32)
    for _ in range(count):
        v = np.sin(v) + v
        expected = np.tanh(expected) * 0.5 + v
    np.testing.assert_allclose(found[last].numpy(), v, rtol=1e-4)
    np.testing.assert_allclose(found[total].numpy(), expected, rtol=1e-3)
    assert session.run(size).item() == 0
