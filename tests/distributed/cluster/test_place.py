"""Where nodes run."""

import pytest

import tandem as td

PS0, PS1, W0, W1 = "/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:0", "/job:worker/task:1"


@pytest.fixture(scope="module")
def cluster():
    with td.distributed.Cluster({"ps": 2, "worker": 2}, engine="threads") as made:
        yield made


@pytest.fixture(autouse=True)
def empty(cluster):
    cluster.reset()


def test_contradictions_name_both_lines(cluster):
    with td.Graph() as graph:
        with td.device(PS0):
            v = td.Variable(1.0, name="v")
        with td.device(W0):
            assigned = v.assign(2.0)
        init = td.global_variables_initializer()
    with pytest.raises(td.DeviceError, match="cannot be placed") as caught:
        td.Session(graph, target=cluster).run(assigned)
    assert str(caught.value).count("test_place.py") >= 2
    session = td.Session(graph, target=cluster, soft_placement=True)
    session.run(init)
    assert session.run(assigned).item() == 2.0


def test_a_task_that_there_is_not_is_refused(cluster):
    with td.Graph() as graph, td.device("/job:worker/task:7"):
        y = td.ones(2) * 2
    with pytest.raises(td.DeviceError, match="task:7, which the cluster does not have"):
        td.Session(graph, target=cluster).run(y)
    assert td.Session(graph, target=cluster, soft_placement=True).run(y).tolist() == [2.0, 2.0]


def test_a_function_of_a_node_places_it(cluster):
    with td.Graph() as graph:
        with td.device(lambda node: PS1 if node.op.name == "variable" else W1):
            v = td.Variable([1.0, 2.0], name="v")
            y = v * 2
        init = td.global_variables_initializer()
    assert (str(v.device), str(y.device)) == (f"{PS1}/device:cpu", f"{W1}/device:cpu")
    session = td.Session(graph, target=cluster)
    session.run(init)
    assert session.run(y).tolist() == [2.0, 4.0]
    assert "v" in cluster.describe(PS1)["variables"]


def test_a_placer_decides_where_free_nodes_are(cluster):
    with td.Graph() as graph:
        v = td.Variable([1.0, 2.0], name="v")
        with td.device(W0):
            y = v * 2.0
        init = td.global_variables_initializer()
    asked = []

    def placer(nodes, placement):
        asked.extend(n.name for n in nodes)
        return {n: PS1 for n in nodes if n.op.name == "variable"}

    session = td.Session(graph, target=cluster, placer=placer)
    session.run(init)
    assert session.run(y).tolist() == [2.0, 4.0]
    assert "v" in cluster.describe(PS1)["variables"] and "v" in asked and "multiply" not in asked
    assert session.value_of(v).tolist() == [1.0, 2.0]


def test_soft_placement_is_for_tasks_and_for_their_devices(cluster):
    with td.Graph() as graph:
        with td.device("/job:worker/task:7"):
            a = td.ones(()) * 2
        with td.device(f"{W1}/device:cuda:97"):
            b = a + 1
    assert td.Session(graph, target=cluster, soft_placement=True).run(b).item() == 3.0
    with pytest.raises(td.DeviceError, match="worker/task:7, which the cluster does not have"):
        td.Session(graph, target=cluster).run(a)
    with pytest.raises(td.DeviceError, match="cuda:97"), td.Graph() as graph:
        with td.device(f"{W1}/device:cuda:97"):
            b = td.ones(()) + 1
        td.Session(graph, target=cluster).run(b)


@pytest.mark.parametrize("variable", [False, True])
def test_errors_are_those_of_one_process(cluster, variable):
    """With names of what another task computes, or has, not of the message that it came in."""
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (None, None), name="x")
        with td.device(PS0):
            w = td.Variable(td.ones((3, 2)), name="w")
        with td.device(W0):
            h = x * 2.0
        with td.device(W1):
            y = h @ (w if variable else td.ones((3, 2)))
        init = td.global_variables_initializer()
    texts = []
    for session in (td.Session(graph, soft_placement=True), td.Session(graph, target=cluster)):
        session.run(init)
        with pytest.raises(td.ShapeError) as caught:
            session.run(y, {x: [[1.0, 2.0, 3.0, 4.0]]})
        texts.append(str(caught.value))
    assert texts[0] == texts[1] and "of (multiply:0 (None, None)" in texts[0] and "test_place.py" in texts[0]


def test_what_is_built_beside_a_node_without_a_device_goes_where_that_goes(cluster):
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (2,), name="x")
        v = td.Variable([1.0, 2.0], name="v")
        with td.colocate_with(v):
            w = td.Variable([3.0, 4.0], name="w")
            y = x * 2.0  # which reads nothing of v
        with td.device(W0):
            far = x + 1.0
        with td.colocate_with(y), td.device("cpu"):
            z = far * 3.0
        init = td.global_variables_initializer()

    def placer(nodes, placement):
        return {n: PS1 for n in nodes if n.name == "v"}

    for made in (graph, td.Graph.from_json(graph.to_json())):
        session = td.Session(made, target=cluster, placer=placer)
        session.run(made.get_operation_by_name(init.name))
        assert set(cluster.describe(PS1)["variables"]) == {"v", "w"}
        found = session.explain([made.get_tensor_by_name(t.name) for t in (v, y)], ["x:0"])
        assert f"{PS1}:" in found and W0 not in found
        assert session.run(z.name, {"x:0": [1.0, 2.0]}).tolist() == [6.0, 9.0]
    plan = td.distributed.place(graph, [PS0, PS1], fetches=[y, v, w])
    assert len({plan.device_of(n) for n in (y, v, w)}) == 1


def test_what_cannot_be_beside_a_node_is_an_error_with_both_lines(cluster):
    with td.Graph() as graph:
        a = td.Variable(1.0, name="a")
        with td.device(PS1):
            b = td.Variable(2.0, name="b")
        with td.colocate_with(a):
            wrong = b.assign(3.0)
            right = a.assign(4.0)
        init = td.global_variables_initializer()
    session = td.Session(graph, target=cluster)
    session.run(init)
    assert session.run(right).item() == 4.0
    with pytest.raises(td.DeviceError, match="'assign' cannot be placed: it is to be where 'a' is") as caught:
        session.run([wrong, a])
    assert str(caught.value).count("test_place.py") >= 3
    assert td.Session(graph, target=cluster, soft_placement=True).run([wrong, a])[0].item() == 3.0
