"""Functions of td.compile on tasks that are processes, and on Ray actors of two nodes: what threads give, they give."""

import contextlib

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tests.distributed.cluster.test_compiled import trained
from tests.distributed.cluster.test_session import PS0, W0, W1

pytestmark = pytest.mark.slow
SPEC = {"ps": 1, "worker": 2}


@contextlib.contextmanager
def ray_nodes():
    """Two nodes, played on this host, each with room for one or two of the tasks."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
    host = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    host.add_node(num_cpus=2)
    ray.init(address=host.address, log_to_driver=False, configure_logging=False)
    try:
        with td.distributed.Cluster(SPEC, engine="ray", threads=1) as made:
            yield made
    finally:
        ray.shutdown()
        host.shutdown()


@pytest.fixture(scope="module", params=["processes", "ray"])
def cluster(request):
    if request.param == "ray":
        with ray_nodes() as made:
            yield made
    else:
        with td.distributed.Cluster(SPEC, engine="processes", threads=1) as made:
            yield made


def test_a_training_step_over_two_tasks_is_that_of_one_process(cluster):
    expected, found = trained(None), trained(cluster)
    for a, b in zip(expected[:3], found[:3], strict=True):
        for left, right in zip(a, b, strict=True):
            np.testing.assert_array_equal(left, right)


def test_a_program_is_registered_once_and_tensors_go_from_task_to_task(cluster):
    before = {task: cluster.describe(task)["counts"] for task in (W0, W1)}
    trained(cluster, sizes=(7, 7, 7))
    counts = {task: {k: n - before[task][k] for k, n in cluster.describe(task)["counts"].items()} for task in (W0, W1)}
    assert [counts[t]["registered"] for t in (W0, W1)] == [1, 1]
    assert [counts[t]["messages"] for t in (W0, W1)] == [3, 3]
    assert counts[W0]["bytes_sent"] == 3 * 7 * 8 * 4


def test_large_state_random_numbers_and_loops(cluster):
    """Tensors that go by shared memory or in parts, dropout, a scan and a branch."""
    found = []
    for target in (None, cluster):
        td.manual_seed(3)
        wide = nn.Linear(300, 500)
        optimizer = td.optim.SGD(wide.parameters(), lr=0.01, momentum=0.9)

        def step(x, wide=wide, optimizer=optimizer):
            with td.device(W0):
                h = nn.functional.dropout(wide(x), 0.5) + td.rand(500)
            with td.device(PS0):
                total, _ = td.scan(lambda carry, row: (carry + row, row), h[0] * 0, h)
                loss = td.cond(total.sum() > 0, lambda: total * 2, lambda: total).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        compiled = td.compile(step, target=target)
        td.manual_seed(4)
        found.append([*[compiled(td.randn(9, 300)).item() for _ in range(3)], wide.weight.detach().numpy()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert found[0][:3] == found[1][:3]


def test_after_a_task_died_a_call_fails_and_the_next_one_is_right(cluster):
    w = td.ones(2, requires_grad=True)

    @td.compile(target=cluster)
    def step(x):
        with td.device(W1):
            loss = (w * x).sum()
        loss.backward()
        with td.no_grad():
            w.sub_(w.grad)
        w.grad = None
        return loss

    assert step(td.tensor([1.0, 2.0])).item() == 3.0
    cluster.kill(W1)
    with pytest.raises(td.TaskError, match="worker/task:1"):
        step(td.ones(2))
    cluster.restart(W1)
    assert w.tolist() == [0.0, -1.0]
    assert step(td.ones(2)).item() == -1.0
    assert w.tolist() == [-1.0, -2.0]


def test_an_error_on_a_task_has_the_users_line(cluster):
    @td.compile(target=cluster)
    def late(x, i):
        with td.device(W0):
            return x[i]  # late

    with pytest.raises(td.IndexRangeError) as caught:
        late(td.ones(3), td.tensor([5]))
    assert "test_compiled_engines.py" in str(caught.value)
    assert late(td.arange(3.0), td.tensor([2])).tolist() == [2.0]
