"""Random numbers over tasks."""

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


def test_random_numbers_are_those_of_one_process(cluster):
    def build(first, second):
        with td.Graph() as graph:
            td.session.set_random_seed(5)
            x = td.placeholder(td.float32, (4,), name="x")
            with td.device(first):
                v = td.Variable(td.randn(3), name="v")
                a = td.nn.functional.dropout(x, 0.5) + 1.0
            with td.device(second):
                b = a + td.rand(4)
            init = td.global_variables_initializer()
        return graph, x, v, a, b, init

    graph, x, v, a, b, init = build(PS0, W1)

    def use(session):
        session.run(init)
        return [*session.run([v, a, b], {x: np.ones(4)}), *session.run([b, a], {x: np.ones(4)})]

    found = both(graph, cluster, use)
    assert found[1].tolist() != found[4].tolist()


def test_random_numbers_of_unknown_sizes_do_not_depend_on_tasks(cluster):
    def drawn(cluster, first, second):
        with td.Graph() as graph:
            td.session.set_random_seed(5)
            x = td.placeholder(td.float32, (None,), name="x")
            with td.device(first):
                a = td.nn.functional.dropout(x, 0.5)
            with td.device(second):
                b = a + td.rand(3)
        session = td.Session(graph, target=cluster)
        return [session.run([a, b], {x: np.ones(3)}) for _ in range(2)]

    with td.distributed.Cluster({"worker": 1}, engine="threads") as small:
        expected = drawn(small, W0, W0)
    for one, other in zip(expected, drawn(cluster, PS0, W1), strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert expected[0][1].tolist() != expected[1][1].tolist()
