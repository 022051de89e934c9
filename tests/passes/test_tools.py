"""Graphs verified, saved, drawn; programs explained; the pass at fault found."""

import pytest

import tandem as td
import tandem.ops as F
from tandem.graph.ir import Graph
from tandem.graph.verify import verify
from tests.pages.data import data_in
from tests.passes.check import shape_of, trace


def small(x):
    return F.Reduce("sum", (1,))(F.Exp()(F.Neg()(x)))


@pytest.mark.parametrize("symbolic", [False, True])
def test_json_gives_the_same_graph_back(symbolic, tmp_path):
    def program(x, i):
        rows = F.Reshape((x.shape[0] * x.shape[1],))(x)
        top = F.Where()(F.Less()(x, F.Constant(float("-inf"), td.float32)()), x, F.Constant(-0.0, td.float32)())
        half = F.Slice((0,), (1,), (rows.shape[0] // 2,))(rows)
        return top, half, F.Gather()(rows, F.CheckIndex(rows.shape[0], 0)(i)), F.Cast(td.float16)(small(x))

    graph = trace(program, ["f32[3,4]", "i64[5]"], symbolic)
    graph.mutations = [(0, graph.outputs[0])]
    graph.save(tmp_path / "graph.json")
    loaded = Graph.load(tmp_path / "graph.json")
    verify(loaded)
    assert str(loaded) == str(graph) and loaded.to_json() == graph.to_json()
    assert str(loaded.symbols.guards) == str(graph.symbols.guards)


def train(x, w):
    loss = (x @ w).relu().sum()
    loss.backward()
    with td.no_grad():
        w -= 0.1 * w.grad
        w.grad = None
    return loss


def test_a_program_tells_its_lines_memory_and_picture(tmp_path):
    w = td.ones(4, 3, requires_grad=True)
    step = td.compile(train)
    step(td.ones(5, 4), w)
    text = str(step.graph())
    line = train.__code__.co_firstlineno
    assert f"matmul(%0, %1)   # test_tools.py:{line + 1}" in text
    memory = step.memory()
    assert memory["inputs"] > 4 * (20 + 12) and memory["outputs"] == 4 and memory["peak"] >= 4 * 15
    assert "after passes" in step.explain() and "at its peak" in step.explain()
    page = step.graph().view(tmp_path / "graph.html")
    assert (tmp_path / "graph.html").read_text() == page
    nodes = data_in(page)["levels"]["operators"]["nodes"]
    assert ("test_tools.py", line + 1) in [(n["file"], n["line"]) for n in nodes if n["title"] == "matmul"]


def test_memory_is_what_lives_at_one_time():
    n = 1 << 16
    x, m = td.ones(n // 256, 256), td.ones(256, 256)
    f = td.compile(lambda x: (((x @ m) @ m) @ m) @ m)
    with td.switches(SKIP="reassociate_matmul"):
        f(x)
    assert f.memory() | {"at": 0} == {"inputs": 8 * n, "outputs": 4 * n, "peak": 8 * n, "at": 0}


def test_structures_compare_but_for_order():
    one = trace(lambda x: (F.Exp()(x), F.Neg()(x)), ["f32[3]"])
    two = trace(lambda x: tuple(reversed((F.Neg()(x), F.Exp()(x)))), ["f32[3]"])
    assert shape_of(one) == shape_of(two)
