"""Where values of a graph are."""

import pytest

import tandem as td
import tandem.ops as F
from tandem.devices import named
from tandem.graph.ir import Builder, Graph, Type, placed
from tandem.ops.define import add_input
from tandem.placement.where import Where, goes_along, is_cpu, spans_devices, task_of

WORKER = "/job:worker/task:1/device:cuda:0"


def build(make, shapes):
    graph = Graph()
    with Builder(graph) as builder:
        inputs = [add_input(builder, Type(td.float32, shape)) for shape in shapes]
        result = make(builder, *inputs)
        graph.outputs = list(result) if isinstance(result, tuple) else [result]
    return graph


def test_an_operator_runs_where_its_operands_are():
    graph = build(lambda b, x, y: F.Add()(F.Neg()(x), y), [(3,), (3,)])
    assert Where(graph, [WORKER, WORKER])[graph.outputs[0]] == WORKER


def test_a_transfer_and_a_binding_say_where():
    def make(builder, x):
        with placed(builder, (), named("cuda")):
            made = F.Iota((3,), 0, td.float32)()
        return F.Transfer("cuda:1", "cpu")(x), made

    graph = build(make, [(3,)])
    where = Where(graph, ["cpu"])
    assert [where[v] for v in graph.outputs] == ["cuda:1", "cuda:0"]
    assert spans_devices(graph, "cpu")


def test_numbers_and_what_is_made_of_them_may_be_anywhere():
    graph = build(lambda b, n: F.Mul()(n, F.Constant(2.0, td.float32)()), [()])
    assert Where(graph, [None])[graph.outputs[0]] is None


def test_a_single_element_of_the_host_goes_along():
    graph = build(lambda b, x, n: F.Mul()(x, n), [(3,), ()])
    assert Where(graph, ["cuda:0", "cpu"])[graph.outputs[0]] == "cuda:0"
    scalar, vector = graph.inputs[1], graph.inputs[0]
    assert goes_along(scalar, "cpu", "cuda:0") and not goes_along(vector, "cpu", "cuda:0")
    assert not goes_along(scalar, "cpu", WORKER), "another process does not see it"


def test_operands_on_different_devices_are_an_error_that_names_the_operator():
    with pytest.raises(td.DeviceError, match="add: its tensors are on different devices: cpu, cuda:0"):
        Where(build(lambda b, x, y: F.Add()(x, y), [(3,), (3,)]), ["cpu", "cuda:0"])


def test_names_say_the_task_and_the_kind():
    assert task_of(WORKER) == "/job:worker/task:1" and task_of("cuda:0") == ""
    assert is_cpu("/job:ps/task:0/device:cpu") and is_cpu("cpu") and not is_cpu(WORKER)
