"""Graphs verified, saved, drawn; programs explained; the pass at fault found."""

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tandem.errors import InternalError
from tandem.graph.ir import Graph, Node, Type
from tandem.graph.verify import verify
from tandem.passes import pipeline
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild
from tests.pages.data import data_in
from tests.passes.check import shape_of, trace


def small(x):
    return F.Reduce("sum", (1,))(F.Exp()(F.Neg()(x)))


def test_wrong_graphs_are_refused():
    verify(trace(small, ["f32[3,4]"]))
    late = trace(small, ["f32[3,4]"])
    late.nodes[1], late.nodes[2] = late.nodes[2], late.nodes[1]
    with pytest.raises(InternalError, match="after x: uses a value of neg, which comes later or not at all"):
        verify(late, "x")
    wrong = trace(small, ["f32[3,4]"])
    wrong.nodes.append(Node(F.Neg(), (wrong.inputs[0],), (Type(td.float32, (3,)),), "train.py:7", 4))
    with pytest.raises(InternalError, match=r"its inputs make it .*f32\[3,4\].* but it is .*f32\[3\].*train\.py:7"):
        verify(wrong)
    lost = trace(small, ["f32[3,4]"])
    lost.outputs = trace(small, ["f32[3,4]"]).outputs
    with pytest.raises(InternalError, match="which no node of the graph makes"):
        verify(lost)


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


# -- bisect


@graph_pass
def doubles_exp(graph):
    """A pass with a mistake."""
    return rebuild(graph, lambda node, inputs: F.Exp()(F.Add()(*inputs * 2)) if node.op.name == "exp" else None)


def test_the_pass_at_fault_is_found(monkeypatch):
    monkeypatch.setattr(pipeline, "PIPELINE", [*pipeline.PIPELINE, doubles_exp])
    w = td.ones(3)

    def step(x):
        w.add_(x.exp().sum(0))
        return {"loss": [x.neg(), w.sum()]}

    found = td.bisect(td.compile(step), td.ones(2, 3), state=[w])
    assert not found.agree and found.passes == ("doubles_exp",) and found.output == 1
    assert str(found).endswith("without doubles_exp they agree")
    assert w.tolist() == [1, 1, 1]


def test_bisect_puts_modules_gradients_and_arguments_back():
    model = td.nn.Sequential(td.nn.Linear(3, 2), td.nn.BatchNorm1d(2))
    optimizer = td.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        loss = model(x).exp().sum()
        loss.backward()
        optimizer.step()
        return loss

    before = [t.detach().numpy().copy() for t in model.state_dict().values()]
    for state in (model, [model[0], *model[1].parameters(), *model[1].buffers()]):
        assert td.bisect(step, td.randn(4, 3), state=state).agree
    for a, b in zip(model.state_dict().values(), before, strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b)
    x = td.ones(3)
    assert td.bisect(lambda x, more: x.add_(1) + more["y"][0].mul_(2), x, more={"y": [x]}).agree and x.tolist() == [
        1,
        1,
        1,
    ]
    with pytest.raises(td.DTypeError, match=r"bisect: state has a int(.|\n)*fix: .*state=model"):
        td.bisect(step, x, state=[3])


def test_what_is_written_into_arguments_is_compared(monkeypatch):
    monkeypatch.setattr(pipeline, "PIPELINE", [*pipeline.PIPELINE, doubles_exp])
    x = td.ones(3)
    found = td.bisect(lambda x: x.copy_(x.exp()) and None, x.reshape(3)[:1])
    assert not found.agree and found.passes == ("doubles_exp",)


def test_the_graph_that_arguments_run():
    @td.compile
    def f(x, times=2):
        return x * times if x.ndim == 1 else x.exp()

    assert "exp" in str(f.graph(td.ones(2, 2))) and "mul" in str(f.graph(td.ones(2), times=3))
    assert "exp" in str(f.graph(td.ones(2, 2))) and "exp" in str(f.graph(0)) and "mul" in str(f.graph())
    assert f.memory(td.ones(16, 16))["outputs"] == 1024
    fast = td.compile(td.nn.Linear(3, 2))
    assert "matmul" in str(fast.graph(td.ones(4, 3))) and str(fast.graph(0)) == str(fast.graph())
    with pytest.raises(td.ValueRangeError, match="no program ran"), td.switches(EAGER=1):
        f.graph(td.ones(2))


def test_the_kernel_at_fault_is_found(monkeypatch):
    """A kernel that subtracts where it should add, and only where it is fused."""
    from tandem.codegen import compile as codegen

    real = codegen.text_of

    def wrong(kernel):
        text = real(kernel)
        return text.replace(" fadd ", " fsub ") if kernel.name.startswith("fused_") and "sinh" in kernel.name else text

    monkeypatch.setattr(codegen, "text_of", wrong)
    w = td.ones(3)

    def step(x):
        y = td.cumsum(x.cos(), 0)
        z = y.sinh() + 0.6251
        total = td.cumsum(z, 0)
        w.mul_(total.sum(0))
        return total, y * 2

    with td.switches(CACHE=0):
        found = td.bisect(td.compile(step), td.linspace(0.0, 1.0, 6).reshape(2, 3), state=[w])
    assert not found.agree and found.passes == ()
    (fault,) = found.steps
    assert fault.name.startswith("kernel fused_") and "sinh" in fault.name
    assert fault.difference > 1 and w.tolist() == [1, 1, 1]
    line = step.__code__.co_firstlineno + 2
    assert f"sinh   # test_tools.py:{line}" in str(found)


def test_a_right_program_has_no_kernel_at_fault():
    """Every step of a training step, with writes, random numbers and library calls, gives what its operators give."""
    from tandem.testing.bisect import _parts
    from tandem.testing.judge import judge

    td.manual_seed(2)
    model = td.nn.Sequential(
        td.nn.Conv2d(2, 4, 3),
        td.nn.BatchNorm2d(4),
        td.nn.ReLU(),
        td.nn.Flatten(),
        td.nn.Linear(64, 5),
        td.nn.Dropout(0.2),
    )
    optimizer = td.optim.AdamW(model.parameters(), lr=0.01)
    faults, judged = [], []

    @td.compile
    def step(x, y):
        loss = td.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def watch(tensors, numbers, ints):
        graph = step._report[-1]["graph"]
        before = [t.clone() for t in tensors]
        faults.extend(judge(graph, tensors, numbers, ints, lambda a, b: _parts([a], [b], rtol=1e-3, atol=1e-5)[:2]))
        judged.append(len(graph.schedule.steps))
        for a, b in zip(tensors, before, strict=True):
            assert (a.numpy() == b.numpy()).all()

    step._report.fresh = True
    step._programs.set_watch(watch)
    step(td.randn(3, 2, 6, 6), td.arange(3))
    assert judged[0] > 10 and faults == []


def test_a_right_function_has_no_pass_at_fault():
    td.manual_seed(1)
    assert td.bisect(lambda x: td.dropout(x, 0.5) * 2, td.ones(50)).agree


# -- the pipeline keeps values


@pytest.mark.parametrize("seed", range(8))
def test_pipelines_keep_every_bit(seed):
    """Random programs of exact operators: with and without passes, the same bits."""
    rng = np.random.default_rng(seed)
    values = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 3e-42, 7.25], np.float32)
    x, y = (td.tensor(rng.choice(values, size=(3, 4))) for _ in range(2))
    plan = rng.integers(0, 12, 25)
    choice = rng.integers(0, 1000, (25, 2))

    def program(x, y):
        made = [x, y]
        for kind, (i, j) in zip(plan, choice, strict=True):
            a, b = made[i % len(made)], made[j % len(made)]
            made.append([
                lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: -a, lambda a, b: a + -b,
                lambda a, b: a.mT.mT, lambda a, b: a.reshape(2, 6).reshape(4, 3).reshape(3, 4),
                lambda a, b: td.where(a < b, a, b), lambda a, b: a.to(td.float64).to(td.float32),
                lambda a, b: td.concat([a, b], 1)[:, 4:8], lambda a, b: td.concat([a[:1], a[1:]], 0),
                lambda a, b: a.clone() * 1 + 0,
            ][kind](a, b))  # fmt: skip
        return made[2:]

    with td.switches(SKIP="all"):
        plain = td.compile(program)(x, y)
    passed = td.compile(program)(x, y)
    for a, b in zip(plain, passed, strict=True):
        a, b = a.numpy(), b.numpy()
        assert (np.isnan(a) == np.isnan(b)).all()
        assert (np.where(np.isnan(a), 0, a).view(np.int32) == np.where(np.isnan(b), 0, b).view(np.int32)).all()


def test_structures_compare_but_for_order():
    one = trace(lambda x: (F.Exp()(x), F.Neg()(x)), ["f32[3]"])
    two = trace(lambda x: tuple(reversed((F.Neg()(x), F.Exp()(x)))), ["f32[3]"])
    assert shape_of(one) == shape_of(two)


def test_operator_functions_that_are_whole_programs_go_through_the_passes(capsys):
    from tandem.ops.define import ParameterSpec, Role, make_function

    body = lambda inputs: (F.Exp()(F.Neg()(F.Neg()(inputs[0]))), F.Neg()(F.Neg()(inputs[1])))
    program = make_function("program", body, [ParameterSpec("inputs", "tensors", True, None, False)],
                            role=Role(whole=True))  # fmt: skip
    with td.switches(PRINT="simplify"):
        a, b = program([td.zeros(2), td.ones(3)])
    assert a.tolist() == [1, 1] and b.tolist() == [1, 1, 1]
    printed = capsys.readouterr().out
    assert "== simplify: 7 -> 4 nodes" in printed and "neg" not in printed


@pytest.mark.parametrize("switch", ["SKIP", "PRINT"])
def test_a_switch_that_names_no_pass_is_told(switch):
    from tandem.errors import SwitchWarning

    with (
        td.switches(**{switch: "simplfy, fold_constants"}),
        pytest.warns(SwitchWarning, match="simplfy\n.*eliminate_dead"),
    ):
        td.compile(lambda x: x * 2 + 1.25)(td.ones(2))
    with td.switches(**{switch: "simplfy"}), pytest.warns(SwitchWarning) as told:  # though its program is on disk now
        td.compile(lambda x: x * 2 + 1.25)(td.ones(2))
    assert told[0].filename == __file__
