"""Where runs are: names of devices with a job and a task, colocation, soft placement, errors that name operator and line."""

import pytest

import tandem as td

WORKER = "/job:worker/task:3/device:cuda:0"


def test_a_device_has_a_job_and_a_task():
    device = td.device(WORKER)
    assert (device.job, device.task, device.type, device.index) == ("worker", 3, "cuda", 0)
    assert device == WORKER == str(device) and device != "cuda:0" and not device.is_local
    assert hash(td.device("/job:worker/task:3/device:cuda")) == hash(device)
    assert td.device("/job:localhost/replica:0/task:0/device:CPU:0") == td.device("/cpu:0") == "cpu"
    assert td.device("cpu").is_local
    with pytest.raises(td.DeviceError, match="another process"):
        td.ones(2, device=WORKER)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("/task:1", "names a task and no job"), ("/job:worker/task:x", "whole number must follow task:"),
        ("/job:worker/task:-1", "whole number must follow task:"), ("/job:/task:0", "name must follow job:"),
        ("/job:worker/task:1/device:cpu:3", "one 'cpu'"), ("/job:worker/device:tpu:0", "'tpu:0' is not known"), ("", "not known"),
    ],
)  # fmt: skip
def test_names_that_say_nothing_are_refused(name, what):
    with pytest.raises(td.DeviceError, match=what):
        td.device(name)


def build(device):
    graph = td.Graph()
    with graph:
        x = td.placeholder(td.float32, (2,), name="x")
        with graph.device(device):
            y = x * 3
        z = y + 1
    return graph, x, y, z


@pytest.mark.parametrize("device", [WORKER, "cuda:14"])
def test_a_run_that_no_device_fits_is_refused_with_the_operator_and_its_line(device):
    graph, x, _, z = build(device)
    with pytest.raises(td.DeviceError) as caught:
        td.Session(graph).run(z, {x: [1.0, 2.0]})
    text = str(caught.value)
    assert text.startswith(("multiply: ", "mul: ")), text
    assert device in text and "test_placement.py" in text and "soft_placement" in text


@pytest.mark.parametrize("device", [WORKER, "cuda:14"])
def test_soft_placement_runs_where_it_can(device):
    graph, x, _, z = build(device)
    assert td.Session(graph, soft_placement=True).run(z, {x: [1.0, 2.0]}).tolist() == [4.0, 7.0]
    config = td.v1.ConfigProto(allow_soft_placement=True)
    assert td.v1.Session(graph=graph, config=config).run(z, {x: [1.0, 2.0]}).tolist() == [4.0, 7.0]


def test_a_kind_of_device_that_there_is_not_is_refused_at_once():
    with pytest.raises(td.DeviceError, match="not known"), td.Graph().device("tpu:0"):
        pass


def test_what_is_colocated_goes_where_the_other_is():
    graph, x, y, z = build(WORKER)
    with graph:
        with td.colocate_with(y), td.name_scope("there"):
            beside = x - 1
        with graph.device("cpu"), td.colocate_with(z):
            anywhere = x - 2
    assert beside.device == WORKER and anywhere.device is None
    with td.colocate_with(td.ones(2)):
        assert td.zeros(2).device == "cpu"


def test_a_bound_graph_is_saved_with_its_devices():
    graph = build(WORKER)[0]
    loaded = td.Graph.from_json(graph.to_json())
    assert WORKER in {str(node.device) for node in loaded.nodes}
