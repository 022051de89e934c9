"""Deferred programs in files: saved here, loaded here or in another process, run by name."""

import copy
import json
import random
import subprocess
import sys

import numpy as np
import pytest

import tandem as td
from tandem.graph.ir import Graph as PrimitiveGraph

ROWS = np.random.default_rng(0).random((6, 4), dtype=np.float32)


def training_program() -> td.Graph:
    with td.Graph("classifier") as graph:
        td.session.set_random_seed(3)
        x = td.placeholder(td.float32, (None, 4), name="x")
        with td.name_scope("layer"):
            w = td.Variable(td.randn(4, 3) * 0.1, name="w")
            scale = td.Variable(w.initialized_value().abs().sum() + 1, name="scale", trainable=False)
        b = td.Variable(td.tensor([0.0, 1.0, float("-inf")]).clamp(-1, 1), name="b")
        steps = td.Variable(0, name="steps", trainable=False)
        logits = td.nn.functional.dropout(x, 0.25) @ w / scale + b
        loss = td.session.identity(-td.log_softmax(logits, -1)[:, 0].mean(), name="loss")
        with td.device("cpu"):
            td.session.identity(loss * 2, name="double")
        step = td.optim.Adam([w, b], lr=0.1, weight_decay=0.01).minimize(loss)
        with td.control_dependencies([step]):
            td.session.group(steps.assign_add(1), name="train")
        td.global_variables_initializer()
    return graph


FETCHES = ["loss:0", "double:0", "layer/w:0", "layer/scale:0", "b:0", "steps:0"]


def train(graph) -> list[np.ndarray]:
    session = td.Session(graph)
    session.run("init")
    for _ in range(4):
        session.run("train", {"x": ROWS})
    return [a.numpy() for a in session.run(FETCHES, {"x:0": ROWS[:5]})]


def test_a_training_program_runs_in_another_process(tmp_path):
    graph = training_program()
    expected = train(graph)
    assert expected[-1] == 4 and np.abs(expected[2]).max() > 0.2  # it has learned something
    graph.save(tmp_path / "program.json")
    np.save(tmp_path / "rows.npy", ROWS)
    code = f"""
import numpy as np, tandem as td
rows = np.load({str(tmp_path / "rows.npy")!r})
session = td.Session(td.Graph.load({str(tmp_path / "program.json")!r}))
session.run("init")
for _ in range(4):
    session.run("train", {{"x": rows}})
np.savez({str(tmp_path / "out.npz")!r}, *[a.numpy() for a in session.run({FETCHES!r}, {{"x:0": rows[:5]}})])
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    for name, a, b in zip(FETCHES, expected, np.load(tmp_path / "out.npz").values(), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)


def test_what_was_loaded_is_what_was_saved():
    graph = training_program()
    text = graph.to_json()
    loaded = td.Graph.from_json(text)
    assert loaded.to_json() == text and str(loaded) == str(graph)
    assert [v.node.name for v in loaded.variables] == [v.node.name for v in graph.variables]
    assert [v.trainable for v in loaded.variables] == [v.trainable for v in graph.variables]
    assert loaded.seed == 3 and loaded.find("double").device == "cpu"
    assert loaded.find("x:0").get_shape() == (None, 4)
    source = loaded.find("loss").source
    assert source == graph.find("loss").source and source.file == __file__
    # Either class reads either kind of file.
    assert isinstance(PrimitiveGraph.from_json(text), td.Graph)


def test_a_loaded_program_can_be_built_on():
    loaded = td.Graph.from_json(training_program().to_json())
    with loaded:
        x, w = loaded.find("x:0"), loaded.find("layer/w:0")
        (slope,) = td.gradients((x @ w).sum(), [w])
        again = td.Variable(td.ones(2), name="b")
        with td.name_scope("layer"):
            inner = td.session.identity(x, name="w")
        reset = td.session.variables_initializer([again])
    assert (again.node.name, inner.node.name) == ("b_1", "layer_1/w")
    session = td.Session(loaded)
    session.run(["init", reset])
    np.testing.assert_allclose(session.run(slope, {x: ROWS}).numpy(), np.repeat(ROWS.sum(0)[:, None], 3, 1), rtol=1e-6)


def test_values_of_variables_come_from_a_saver(tmp_path):
    graph = training_program()
    session = td.Session(graph)
    session.run("init")
    session.run("train", {"x": ROWS})
    td.Saver().save(session, tmp_path / "values.safetensors")
    other = td.Session(td.Graph.from_json(graph.to_json()))
    td.Saver().restore(other, tmp_path / "values.safetensors")
    assert np.array_equal(other.run("layer/w:0").numpy(), session.run("layer/w:0").numpy())


def control_program() -> tuple[td.Graph, list]:
    graph = td.Graph()
    with graph:
        x = td.placeholder(td.float32, (None,), name="x")
        v = td.Variable(td.zeros(3), name="v")
        factor = td.tensor([2.0])
        total, rows = td.scan(
            lambda c, r: (c + r * factor[0], td.cond(c > 3, lambda: c * x.sum(), lambda: r)), td.zeros(()), x
        )
        counted, _ = td.scan(lambda c, _: (c + 1, c), td.zeros(()), None, length=td.concat([x, x], 0).shape[0])
        doubled = td.while_loop(lambda c: c.sum() < 50, lambda c: c * 2, x + 1, maximum=x.shape[0] + 3)
        noisy, _ = td.scan(lambda c, _: (c + td.rand(()), None), td.zeros(()), None, length=3)
        wired = td.graph_ops.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s * x[0]), [td.zeros(()), x.sum()])[1]
        chosen = td.graph_ops.cond(x.sum() > 3, lambda: v.assign_add(x[:3]), lambda: v.assign_sub(x[:3]))
        (slope,) = td.gradients(total * rows.sum(), [x])
        with td.control_dependencies([td.session.scatter_add(v, [0, 2], [1.0, 5.0])]):
            after = v.value()
        rebuilt = td.zeros(x.shape[0], 2).sum() + td.full((2,), x.shape[0] * 2)
        td.global_variables_initializer()
    return graph, [total, rows, counted, doubled, noisy, wired, chosen, slope, after, rebuilt]


def test_branches_loops_and_stores_come_back():
    graph, fetches = control_program()
    text = graph.to_json()
    loaded = td.Graph.from_json(text)
    assert loaded.to_json() == text
    sessions = td.Session(graph), td.Session(loaded)
    for given in ([1.0, 2.0, 3.0], [1.0, 0.5, 0.25, 0.125], [0.5, -1.0, 0.25]):
        both = []
        for session in sessions:
            td.manual_seed(5)
            session.run("init")
            both.append([session.run(f.name, {"x": given}).numpy() for f in fetches])
        for f, a, b in zip(fetches, *both, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f.name)
    assert both[0][2] == 6  # the number of steps is a size


@pytest.mark.parametrize(
    "dtype", [td.float32, td.float64, td.float16, td.bfloat16, td.int8, td.uint64, td.bool, td.complex64]
)
def test_tensors_that_a_program_holds_are_saved_with_their_values(dtype):
    held = [td.tensor([[0, 1, 2], [3, 0, 1]]).astype(dtype).T, td.ones((), dtype=dtype), td.zeros(0, 3, dtype=dtype)]
    with td.Graph() as graph:
        names = [td.session.identity(t).name for t in held]
    loaded = td.Graph.from_json(graph.to_json())
    for t, got in zip(held, td.Session(loaded).run(names), strict=True):
        assert got.dtype is t.dtype and got.shape == t.shape and got.tolist() == t.tolist()


def test_sizes_that_were_compared_are_compared_again():
    with td.Graph() as graph:
        x, y = td.placeholder(td.float32, (None,), name="x"), td.placeholder(td.float32, (None,), name="y")
        assert x.shape[0] == y.shape[0]
        total = (x * 1).sum() + (y * 1).sum()
    loaded = td.Graph.from_json(graph.to_json())
    assert td.Session(loaded).run(total.name, {"x": [1, 2], "y": [3, 4]}).item() == 10
    with pytest.raises(td.ShapeError, match="the program that built the graph asked whether"):
        td.Session(loaded).run(total.name, {"x": [1, 2, 3], "y": [3, 4]})


def test_what_lives_in_one_process_is_refused_by_name_and_line():
    def halve(a):
        return a / 2

    with td.Graph() as graph:
        x = td.placeholder(td.float32, (3,), name="x")
        td.py_func(halve, [x], td.float32, name="half")
    with pytest.raises(
        td.UnsupportedError, match=r"(?s)'half' \(py_func\) calls the Python function .*halve; .*test_serialize.py:\d"
    ):
        graph.to_json()
    with td.Graph() as graph:
        td.FIFOQueue(2, td.float32, (), name="lines").dequeue(name="next")
    with pytest.raises(
        td.UnsupportedError, match=r"(?s)'next' \(dequeue\) works on a queue.*at .*test_serialize.py:\d+"
    ):
        graph.save("/nowhere/at/all.json")
    made_here = td.compile(lambda a: a)  # no operator function: it is inlined, and what it does is saved
    with td.Graph() as graph:
        made_here(td.placeholder(td.float32, (3,)) * 2)
    graph.to_json()


def change(path, value):
    def run(document):
        at = document
        for key in path[:-1]:
            at = at[key]
        if value is KeyError:
            del at[path[-1]]
        else:
            at[path[-1]] = value

    return run


@pytest.mark.parametrize(
    "damage, text",
    [
        (change(["nodes"], KeyError), "it has no nodes"),
        (change(["seed"], KeyError), "it has no seed"),
        (change(["format"], 99), "format 99; only 3 and below"),
        (change(["nodes", 1, "op"], "Host"), "there is no kind of node 'Host'"),
        (change(["nodes", 1, "name"], "x"), "that of another node"),
        (change(["nodes", 1, "fields", 0], ["function", None, "frobnicate"]), "no operator function 'frobnicate'"),
        (change(["nodes", 1, "fields", 0], ["function", "os", "system"]), "'system' of 'os' is no operator function"),
        (change(["nodes", 1, "fields", 0], ["function", "tandem.session", "Graph"]), "no operator function 'Graph'"),
        (change(["nodes", 1, "inputs"], [7]), "refers to number 7, of 1 before it"),
        (change(["nodes", 1, "inputs"], []), "node 'multiply' of 'graph' is wrong"),
        (change(["nodes", 1, "inputs"], KeyError), "node 'multiply' of 'graph' has no 'inputs'"),
        (change(["nodes", 1, "types", 0, 1], "float31"), "no dtype 'float31'"),
        (change(["nodes", 1, "types"], []), "its operator makes it"),
        (change(["nodes", 0, "types", 0, 2], ["tuple", ["sym", [1, 9]]]), "refers to number 9, of 1"),
        (change(["nodes", 3, "initial"], KeyError), "only a variable has an initial value"),
        (change(["nodes", 5, "fields", 1], ["value", 0]), "it stores no value in a variable"),
        (change(["nodes", 0, "fields", 1], ["tensor", "float32", [3], "cpu", "AAAA"]), "does not take 3 bytes"),
        (change(["nodes", 1, "control"], [4]), "refers to number 4"),
        (change(["symbols", 0], {}), "its sizes has no 'hint'"),
        (change(["guards"], [["~", 3]]), "no relation '~'"),
    ],
)
def test_damaged_files_are_refused(damage, text):
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (None,), name="x")
        v = td.Variable((x * 2).sum(), name="v")
        v.assign(x.sum())
    document = json.loads(graph.to_json())
    damage(document)
    with pytest.raises(ValueError, match=text):
        td.Graph.from_json(json.dumps(document))


def test_random_damage_is_an_error_and_never_more():
    """Whatever a file says: it is refused, or gives a program whose runs end with a result or an exception."""
    graph, fetches = control_program()
    documents = [json.loads(graph.to_json()), json.loads(training_program().to_json())]
    names = [[f.name for f in fetches], FETCHES]
    rng = random.Random(0)
    refused = 0
    for turn in range(120):
        document = copy.deepcopy(documents[turn % 2])
        at, key, parent = document["nodes"], None, None
        while isinstance(at, (list, dict)) and at and (parent is None or rng.random() < 0.8):
            parent, key = at, rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
            at = at[key]
        parent[key] = rng.choice(
            [None, -1, 0, 1, 2, 10**9, True, "x", [], {}, ["tuple"], ["operand", 5], ["value", 1], 0.5]
        )
        try:
            loaded = td.Graph.from_json(json.dumps(document))
        except ValueError:
            refused += 1
            continue
        for name in ["init", *rng.sample(names[turn % 2], 2)]:
            try:
                session = td.Session(loaded)
                session.run("init", timeout=5)
                session.run(name, {"x": [1.0, 2.0, 3.0] if turn % 2 == 0 else ROWS}, timeout=5)
            except Exception:
                continue  # that it comes to this is the point
    assert refused > 60
