"""Placement found automatically: graphs of training steps, what must sit together, memory, parts that compute the same."""

import pytest

import tandem as td
from tandem.devices import canonical
from tandem.distributed import PlacementCosts, Topology, measure_nodes, place
from tandem.distributed.automatic.step import whole_step
from tandem.distributed.topology import DeviceModel, Link
from tandem.distributed.traced import trace_loss

TASKS = ["/job:worker/task:0/device:cpu", "/job:worker/task:1/device:cpu"]


def towers(width=64, rows=256):
    td.manual_seed(0)
    w1, w2 = (td.nn.Parameter(td.randn(width, width)) for _ in range(2))

    def loss(x, y):
        return (td.relu(x @ w1) * td.relu(y @ w2)).sum()

    return loss, (td.randn(rows, width), td.randn(rows, width)), [w1, w2]


def run_parts(plan, tensors):
    """What the parts of a plan compute, one after another, with values looked up as crossings bring them."""
    cut = plan.partition()
    known = {}
    for part in cut.parts:
        for v in part.takes:
            known.setdefault(v, None)
    inputs = {v: tensors[v.op.position] for v in known if v.op.name == "input"}
    known.update(inputs)
    for part in cut.parts:
        results = part.graph.run(*[known[v] for v in part.takes])
        known.update(zip(part.gives, results, strict=True))
    return [known[v] if v in known else tensors[v.op.position] for v, _ in cut.results]


def test_independent_towers_go_to_two_devices_and_one_value_crosses_each_way():
    loss, batch, _ = towers()
    plan = place(loss, TASKS, batch, topology=td.distributed.Topology.processors(2))  # whose links are quick
    assert plan.seconds < 0.7 * plan.alone
    matmuls = [n for n in plan.source.nodes if n.op.name == "matmul"]
    assert {plan.device_of(n) for n in matmuls} == set(TASKS)
    assert plan.transfers <= 3 and plan.bytes <= 3 * 256 * 64 * 4
    assert len(plan.idle) == 2 and all(0 <= i < plan.seconds for i in plan.idle)
    assert plan.bound is not None and plan.bound <= plan.seconds * (1 + 1e-9)


def test_on_slow_links_everything_stays_on_one_device():
    loss, batch, _ = towers()
    device = Topology.processors(2).device
    plan = place(loss, TASKS, batch, costs=PlacementCosts([device, device], Link(1e6, 1e-2)))
    assert plan.seconds == plan.alone and plan.transfers == 0
    assert len(set(plan.inputs)) == 1


def test_a_faster_device_gets_the_work():
    loss, batch, _ = towers()
    slow, fast = DeviceModel(1e9, 1e9, 1e9), DeviceModel(50e9, 50e9, 1e9)
    plan = place(loss, TASKS, batch, costs=PlacementCosts([slow, fast], Link(1e9, 1e-5)))
    matmuls = [n for n in plan.source.nodes if n.op.name == "matmul"]
    assert {plan.device_of(n) for n in matmuls} == {TASKS[1]}


def test_gradients_come_to_where_their_parameter_is():
    loss, batch, _ = towers()
    plan = place(loss, TASKS, batch, hold={2: TASKS[0], 3: TASKS[0]})
    assert plan.inputs[2] == plan.inputs[3] == TASKS[0]


def test_parts_of_a_plan_compute_what_the_whole_graph_does():
    loss, batch, weights = towers(16, 8)
    plan = place(loss, TASKS, batch)
    tensors = [*batch, *(w.detach() for w in weights)]
    whole = plan.source.run(*[t.clone() for t in tensors])
    for a, b in zip(run_parts(plan, [t.clone() for t in tensors]), whole, strict=True):
        assert bool((a == b).all())


def test_nodes_bound_by_the_program_stay_where_they_are():
    loss, batch, _ = towers()
    step = whole_step(trace_loss("place", loss, batch)).graph
    node = next(n for n in step.nodes if n.op.name == "matmul")
    plan = place(step, TASKS, hold={node: "/job:worker/task:1"})
    assert plan.device_of(node) == TASKS[1]
    bound = plan.graph()
    assert all(n.device is None or canonical(n.device) in TASKS for n in bound.nodes)
    again = place(bound, TASKS)
    assert again.seconds == pytest.approx(plan.seconds, rel=0.2)


def test_contradictions_name_both_lines():
    def two(x):
        y = x @ x
        return y @ x

    compiled = td.compile(two)
    compiled(td.ones(8, 8))
    graph = compiled.graph()
    a, b = [n for n in graph.nodes if n.op.name == "matmul"]
    lines = two.__code__.co_firstlineno + 1, two.__code__.co_firstlineno + 2
    wanted = rf"matmul.*task:0.*test_place.py:{lines[0]}.* and .*matmul.*task:1.*test_place.py:{lines[1]}.*sit together"
    with pytest.raises(td.DeviceError, match=wanted):
        place(graph, TASKS, hold={a: TASKS[0], b: TASKS[1]}, colocate=[(a, b)])
    with pytest.raises(td.DeviceError, match=r"task:7.*there are"):
        place(graph, TASKS, hold={a: "/job:worker/task:7/device:cpu"})
    plan = place(graph, TASKS, hold={a: TASKS[1]}, colocate=[(a, b)])
    assert plan.device_of(b) == TASKS[1]


def test_memory_limits_spread_a_model_or_say_what_is_missing():
    loss, batch, _ = towers(64, 8)
    size = 64 * 64 * 4
    model = lambda memory: DeviceModel(40e9, 8e9, memory)
    slow = Link(1e5, 1e-3)
    roomy = place(loss, TASKS, batch, costs=PlacementCosts([model(1e9)] * 2, slow))
    assert len(set(roomy.inputs[2:])) == 1
    tight = place(loss, TASKS, batch, costs=PlacementCosts([model(2.9 * size)] * 2, slow))
    assert set(tight.inputs[2:]) == set(TASKS) and max(tight.memory) <= 2.9 * size
    assert tight.alone is None
    with pytest.raises(td.OutOfMemoryError, match="does not fit"):
        place(loss, TASKS, batch, costs=PlacementCosts([model(0.5 * size)] * 2, slow))


def test_measured_times_and_what_a_plan_tells(tmp_path):
    loss, batch, _ = towers()
    step = whole_step(trace_loss("place", loss, batch)).graph
    times = measure_nodes(step)
    assert all(t > 0 for t in times.values())
    assert {n for n in step.nodes if n.op.name == "matmul"} <= set(times)
    plan = place(step, TASKS, costs=PlacementCosts.of(Topology.processors(2), times))
    assert plan.seconds <= plan.alone <= sum(times.values()) * 1.001
    text = plan.explain()
    assert "one device alone" in text and all(d in text for d in TASKS) and "idle" in text
    page = plan.view(tmp_path / "plan.html")
    assert (tmp_path / "plan.html").read_text() == page
    assert all(d in page for d in TASKS) and "#cfe3f7" in page and "#fbd9b5" in page
    begins = [begin for begin, *_ in plan.schedule()]
    assert begins == sorted(begins) and max(end for _, end, *_ in plan.schedule()) <= plan.seconds * 1.0001


def test_bad_arguments():
    loss, batch, _ = towers(8, 8)
    with pytest.raises(td.DeviceError, match="each once"):
        place(loss, [TASKS[0], TASKS[0]], batch)
    with pytest.raises(ValueError, match="without args"):
        place(loss, TASKS)
    with pytest.raises(ValueError, match="speeds"):
        PlacementCosts([Topology.processors(1).device], Link(1e9), speeds=[0.0])
