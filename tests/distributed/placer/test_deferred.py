"""Deferred graphs placed over the tasks of a cluster: state binds what writes it, and runs give the same."""

import numpy as np
import pytest

import tandem as td
from tandem.distributed import Cluster, measure_cluster, place
from tandem.distributed.placer.deferred import Needed


def towers(width=64):
    rng = np.random.default_rng(0)
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (None, width), name="x")
        ends, variables = [], []
        for side in "ab":
            w = td.Variable(td.tensor(rng.standard_normal((width, width)).astype(np.float32) / 8), name=f"w_{side}")
            variables.append(w)
            ends.append(td.tanh(td.tanh(x @ w) @ w))
        loss = (ends[0] * ends[1]).sum()
        count = td.Variable(td.tensor(0.0), trainable=False, name="count")
        counted = td.session.assign_add(count, loss)
        init = td.global_variables_initializer()
    return graph, x, loss, counted, variables, init


def test_towers_are_placed_over_tasks_and_give_the_same(tmp_path):
    graph, x, loss, counted, variables, init = towers()
    data = np.random.default_rng(1).standard_normal((32, 64)).astype(np.float32)
    alone = td.Session(graph)
    alone.run(init)
    expected = alone.run([loss, counted], {x: data})
    graph, x, loss, counted, variables, init = towers()
    with Cluster({"worker": 2}, engine="threads") as cluster:
        plan = place(graph, cluster.tasks, fetches=[loss, counted], batch=4096)
        assert plan.seconds < 0.8 * plan.alone
        assert {plan.device_of(v) for v in variables} == {f"{t}/device:cpu" for t in cluster.tasks}
        assert all(t in plan.view(tmp_path / "p.html") for t in cluster.tasks)
        plan.apply()
        assert all(v.node.device is not None for v in variables)
        session = td.Session(graph, target=cluster)
        session.run(init)
        found = session.run([loss, counted], {x: data})
        assert all(td.allclose(a, b, rtol=1e-5) for a, b in zip(found, expected, strict=True))
        assert [len(cluster.describe(t)["variables"]) for t in cluster.tasks] in ([1, 2], [2, 1])


def test_training_steps_count_gradients_where_values_are_computed():
    def build():
        graph, x, loss, _, variables, _ = towers()
        with graph:
            changes = [0.01 * g for g in td.gradients(loss, variables)]
            step = td.session.group(*(v.assign_sub(g) for v, g in zip(variables, changes, strict=True)))
            init = td.global_variables_initializer()
        return graph, x, loss, step, variables, init

    data = np.random.default_rng(1).standard_normal((16, 64)).astype(np.float32)

    def train(target=None):
        graph, x, loss, step, variables, init = build()
        if target is not None:
            forward = place(graph, target.tasks, fetches=[loss], batch=4096)
            plan = place(graph, target.tasks, fetches=[loss, step], batch=4096)
            assert 2.5 < plan.alone / forward.alone < 4.5
            assert {plan.device_of(v) for v in variables} == {f"{t}/device:cpu" for t in target.tasks}
            assert plan.seconds < 0.8 * plan.alone
            plan.apply()
        session = td.Session(graph, target=target) if target else td.Session(graph)
        session.run(init)
        return [session.run([loss, step], {x: data})[0].item() for _ in range(3)]

    with Cluster({"worker": 2}, engine="threads") as cluster:
        assert train(cluster) == pytest.approx(train(), rel=1e-4)


def test_what_writes_a_variable_sits_with_it_and_scopes_bind():
    graph, _, loss, counted, variables, _ = towers()
    tasks = ["/job:worker/task:0", "/job:worker/task:1"]
    needed = Needed(graph, [counted])
    (pair,) = needed.together()
    assert pair[0].op.name == "variable" and pair[1].op.name == "assign_add"
    plan = place(graph, tasks, fetches=[loss, counted], hold={variables[0]: tasks[1], variables[1]: tasks[1]})
    assert plan.device_of(variables[0]) == plan.device_of(variables[1]) == f"{tasks[1]}/device:cpu"
    assert plan.device_of(counted) == plan.device_of(pair[0])


def test_a_cluster_is_measured():
    with Cluster({"worker": 2}, engine="threads") as cluster:
        costs = measure_cluster(cluster, repeats=2)
        assert len(costs.models) == 2 and costs.models[0].operations > 1e6
        assert 0 < costs.together <= 1 and costs.link(0, 1).bandwidth > 0
        graph, _, loss, *_ = towers(16)
        plan = place(graph, cluster.tasks, fetches=loss, costs=costs)
        assert plan.seconds <= plan.alone


def test_measured_times_and_bad_arguments():
    graph, _, loss, *_ = towers(16)
    plan = place(graph, ["/job:worker/task:0", "/job:worker/task:1"], fetches=loss, measure=True)
    assert 0 < plan.seconds <= plan.alone
    with pytest.raises(ValueError, match="fetches="):
        place(graph, ["/job:worker/task:0"])
    with pytest.raises(td.UnsupportedError, match=r"plan.graph\(\)"):
        w = td.ones(4, 4, requires_grad=True)
        place(lambda x: (x @ w).sum(), ["cpu"], (td.ones(2, 4),)).apply()


def test_small_graphs_stay_on_one_task_where_nothing_was_measured():
    """A message between tasks takes longer than what it would save here; between devices of one task it does not."""
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (128, 32), name="x")
        ends = []
        for side in "ab":
            y = x
            for k in range(3):
                y = td.tanh(y @ td.Variable(td.ones(32, 32), name=f"{side}{k}"))
            ends.append(y)
        result = (ends[0] * ends[1]).sum()
    tasks = td.distributed.place(graph, ["/job:worker/task:0", "/job:worker/task:1"], fetches=[result])
    within = td.distributed.place(graph, ["/job:worker/task:0", "/job:worker/task:0/device:cuda:0"], fetches=[result])
    assert tasks.transfers == 0 and tasks.seconds == tasks.alone
    assert within.transfers == 1 and within.seconds < 0.8 * within.alone
