"""Functions of td.compile whose operators are on tasks of a cluster."""

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tests.distributed.cluster.test_session import PS0, W0, W1, cluster, empty  # noqa: F401


def layers():
    td.manual_seed(0)
    return nn.Linear(4, 8), nn.Linear(8, 2)


def training(first, second, optimizer):
    def step(x, y):
        with td.device(W0):
            hidden = td.tanh(first(x))
        with td.device(W1):
            loss = ((second(hidden) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def trained(target, make=lambda ps: td.optim.Adam(ps, lr=0.1), sizes=(5, 5, 3, 5)):
    first, second = layers()
    parameters = [*first.parameters(), *second.parameters()]
    step = td.compile(training(first, second, make(parameters)), target=target)
    td.manual_seed(1)
    losses = [step(td.randn(n, 4), td.randn(n, 2)).item() for n in sizes]
    return losses, [p.detach().numpy() for p in parameters], [p.grad.numpy() for p in parameters], step


@pytest.mark.parametrize(
    "make",
    [lambda ps: td.optim.SGD(ps, lr=0.1, momentum=0.9), lambda ps: td.optim.Adam(ps, lr=0.1)],
    ids=["momentum", "adam"],
)
def test_a_training_step_over_two_tasks_is_that_of_one_process(cluster, make):  # noqa: F811
    expected, found = trained(None, make), trained(cluster, make)
    for a, b in zip(expected[:3], found[:3], strict=True):
        for left, right in zip(a, b, strict=True):
            np.testing.assert_array_equal(left, right)


def test_each_task_has_forward_and_backward_of_what_was_called_for_it(cluster):  # noqa: F811
    before = {task: cluster.describe(task)["counts"] for task in (W0, W1)}
    *_, step = trained(cluster, sizes=(5, 5, 5))
    text = step.explain()
    assert "to /job:worker/task:1: tanh:0 (5, 8)" in text
    assert "to /job:worker/task:0: matmul:0 (5, 8)" in text
    counts = {task: {k: n - before[task][k] for k, n in cluster.describe(task)["counts"].items()} for task in (W0, W1)}
    assert [counts[t]["registered"] for t in (W0, W1)] == [1, 1]  # once, for three steps
    assert [counts[t]["messages"] for t in (W0, W1)] == [3, 3]  # values one way, gradients the other
    assert counts[W0]["bytes_sent"] == 3 * 5 * 8 * 4


def test_what_the_caller_changes_is_seen_and_the_rest_is_not_sent_again(cluster):  # noqa: F811
    w = td.ones(3, requires_grad=True)
    loads = []
    task = cluster.engine.tasks[W0]
    task.calls["load"], load = lambda c, a, t: (loads.append(a[0]), load(c, a, t))[1], task.calls["load"]

    @td.compile(target=cluster)
    def product(x):
        with td.device(W0):
            return (w * x).sum()

    try:
        assert [product(td.full((3,), float(k))).item() for k in range(3)] == [0.0, 3.0, 6.0]
        assert len(loads) == 1
        with td.no_grad():
            w.mul_(2)
        assert product(td.ones(3)).item() == 6.0
        w.data[0] = 10.0
        assert product(td.ones(3)).item() == 14.0
        w.detach().numpy()[1] = 20.0  # which no counter sees
        assert product(td.ones(3)).item() == 32.0
        assert len(loads) == 4
    finally:
        task.calls["load"] = load


def test_python_code_runs_at_every_call(cluster):  # noqa: F811
    scale = 2.0

    @td.compile(target=cluster)
    def f(x, double):
        with td.device(W0):
            y = x * scale
        if double:
            with td.device(W1):
                y = y + y
        if y.sum() > 10:  # reading a value ends a program
            y = y - 1
        return y

    x = td.tensor([1.0, 2.0])
    assert f(x, False).tolist() == [2.0, 4.0]
    assert f(x, True).tolist() == [3.0, 7.0]
    scale = 3.0
    assert f(x, False).tolist() == [3.0, 6.0]


def test_random_numbers_and_loops_are_those_of_one_process(cluster):  # noqa: F811
    def f(x):
        with td.device(W0):
            x = nn.functional.dropout(x, 0.5) + td.rand(4)
        with td.device(W1):
            total, _ = td.scan(lambda carry, row: (carry + row, row), x.sum(), x)
            return td.cond(total > 0, lambda: total * 2, lambda: total)

    found = []
    for target in (None, cluster):
        td.manual_seed(3)
        compiled = td.compile(f, target=target)
        found.append([compiled(td.ones(4)).item() for _ in range(3)])
    assert found[0] == found[1] and len(set(found[0])) == 3


def test_gradients_of_gradients(cluster):  # noqa: F811
    def penalty(x):
        x = x.detach().requires_grad_()
        with td.device(W0):
            h = td.tanh(x * 2)
        with td.device(W1):
            y = (h**3).sum()
        (g,) = td.autograd.grad(y, x, create_graph=True)
        (second,) = td.autograd.grad((g * g).sum(), x)
        return second

    x = td.linspace(-1, 1, 5)
    expected = td.compile(penalty)(x)
    np.testing.assert_allclose(td.compile(penalty, target=cluster)(x).numpy(), expected.numpy(), rtol=1e-6)


def test_a_device_without_a_job_is_one_of_the_task_around(cluster):  # noqa: F811
    @td.compile(target=cluster)
    def f(x):
        with td.device(PS0), td.device("cpu"):
            return x + 1

    assert f(td.zeros(2)).tolist() == [1.0, 1.0]
    assert cluster.describe(PS0)["counts"]["steps"] == 1


def test_a_module_is_compiled_for_a_cluster(cluster):  # noqa: F811
    class Split(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = layers()

        def forward(self, x):
            with td.device(W0):
                x = self.first(x).relu()
            with td.device(W1):
                return self.second(x)

    model = Split()
    x = td.randn(3, 4)
    expected = model(x)
    found = td.compile(model, target=cluster)(x)
    np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy())
    found.sum().backward()  # outside of the function: here
    assert model.first.weight.grad is not None


def test_after_a_task_died_a_call_fails_and_the_next_one_is_right(cluster):  # noqa: F811
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
    try:
        with pytest.raises(td.TaskError, match="worker/task:1"):
            step(td.ones(2))
    finally:
        cluster.restart(W1)
    assert w.tolist() == [0.0, -1.0]  # as it was before the call that failed
    assert step(td.ones(2)).item() == -1.0
    assert w.tolist() == [-1.0, -2.0]


def test_bad_calls_are_refused_with_the_line(cluster):  # noqa: F811
    @td.compile(target=cluster)
    def elsewhere(x):
        with td.device("/job:worker/task:7"):
            return x * 2

    with pytest.raises(td.DeviceError, match="/job:worker/task:7, which the cluster does not have"):
        elsewhere(td.ones(2))

    @td.compile(target=cluster)
    def late(x, i):
        with td.device(W0):
            return x[i]  # late

    with pytest.raises(td.IndexRangeError) as caught:
        late(td.ones(3), td.tensor([5]))
    assert "test_compiled.py" in str(caught.value)
    with pytest.raises(td.DTypeError, match="target is a str; it must be a cluster"):
        td.compile(elsewhere, target="worker")
