"""Graphs that users meet: immutable, verified, saved and run elsewhere."""

import json
import subprocess
import sys

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.errors import InternalError
from tandem.graph.ir import Graph
from tandem.graph.verify import verify


def softmax_graph():
    f = td.compile(lambda x: (td.softmax(x * 2, -1), x.sum()))
    f(td.ones(2, 3))
    return f.graph()


def test_nothing_of_a_graph_can_be_changed_from_outside():
    graph = softmax_graph()
    node = graph.nodes[-1]
    for change in (
        lambda: setattr(node, "op", None),
        lambda: setattr(node, "inputs", ()),
        lambda: setattr(node.outputs[0], "type", None),
        lambda: setattr(graph, "outputs", ()),
        lambda: graph.nodes.append(node),
    ):
        with pytest.raises(AttributeError):
            change()


def test_the_verifier_names_what_is_wrong():
    def broken(change):
        graph = Graph.from_json(softmax_graph().to_json())
        verify(graph)
        change(graph)
        with pytest.raises(InternalError) as caught:
            verify(graph)
        return str(caught.value)

    assert "is in the graph twice" in broken(lambda g: g.nodes.append(g.nodes[-1]))
    assert "comes later or not at all" in broken(lambda g: g.nodes.reverse())
    assert "which no node of the graph makes" in broken(lambda g: setattr(g, "outputs", [softmax_graph().outputs[0]]))
    assert "input 7 is to take" in broken(lambda g: setattr(g, "mutations", [(7, g.outputs[0])]))


def test_a_training_step_runs_from_its_file_in_another_process(tmp_path):
    td.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = td.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @td.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = td.rand(5, 4), td.randint(0, 3, (5,))
    step(x, y)
    kept = {}
    # What a program gets, in the order of its inputs: td.bisect sees it the same way.
    other = td.compile(step._fn)
    other._programs.set_watch(lambda tensors, numbers, ints: kept.update(
        tensors=[t.numpy().copy() for t in tensors], numbers=[n[1] for n in numbers], ints=ints))  # fmt: skip
    loss = other(x, y)
    graph = other.graph()
    graph.save(tmp_path / "step.json")
    np.savez(tmp_path / "inputs.npz", *kept["tensors"])
    program = f"""
import numpy as np, tandem as td
from tandem.graph.ir import Graph
graph = Graph.load({str(tmp_path / "step.json")!r})
arrays = np.load({str(tmp_path / "inputs.npz")!r})
tensors = [td.tensor(arrays[f"arr_{{i}}"]) for i in range(len(arrays.files))]
results = graph.run(*tensors, *{kept["numbers"]!r})
np.savez({str(tmp_path / "out.npz")!r}, *[r.numpy() for r in results], *[tensors[p].numpy() for p, _ in graph.mutations])
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    out = list(np.load(tmp_path / "out.npz").values())
    assert any(np.allclose(a, loss.item(), rtol=1e-5) for a in out if a.shape == ())
    weights = [a for a in out[len(graph.outputs) :] if a.shape == (8, 4)]
    assert any(np.allclose(a, model[0].weight.detach().numpy(), rtol=1e-5) for a in weights)


def test_running_a_graph_checks_what_it_is_given():
    graph = softmax_graph()
    rows = graph.run(td.ones(4, 3), 2)[0]
    assert rows.shape == (4, 3)
    with pytest.raises(td.ShapeError, match=r"input 0 is f32\[s0,3\]; a tensor of shape \(4, 2\)"):
        graph.run(td.ones(4, 2), 2)
    with pytest.raises(td.DTypeError, match="input 0 is"):
        graph.run(td.ones(4, 3, dtype=td.float64), 2)
    with pytest.raises(td.ValueRangeError, match="2 inputs"):
        graph.run(td.ones(4, 3))


def test_files_that_are_no_graphs_are_refused():
    document = json.loads(softmax_graph().to_json())
    with pytest.raises(ValueError, match="no graph that was saved"):
        Graph.from_json("garbage")
    with pytest.raises(ValueError, match="it has no nodes"):
        Graph.from_json(json.dumps({k: v for k, v in document.items() if k != "nodes"}))
    with pytest.raises(ValueError, match="format 99"):
        Graph.from_json(json.dumps({**document, "format": 99}))


def test_files_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "graph.json"
    path.write_bytes(bytes(range(256)))
    for kind in (Graph, td.Graph):
        with pytest.raises(ValueError, match=r"no graph that was saved: .*graph\.json is no text") as found:
            kind.load(path)
        assert not isinstance(found.value, UnicodeError)
    path.write_text(softmax_graph().to_json())
    assert kind.load(path).run(td.ones(4, 3), 2)[0].shape == (4, 3)
