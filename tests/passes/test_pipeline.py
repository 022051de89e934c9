"""The pipeline of passes."""

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tandem.errors import InternalError
from tandem.graph.ir import Graph
from tandem.passes import pipeline
from tandem.passes.graph_pass import PASSES, graph_pass
from tests.passes.check import trace

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


def test_the_pass_that_gives_a_wrong_graph_is_named(monkeypatch):
    @graph_pass
    def loses_a_node(graph):
        wrong = Graph(graph.symbols, graph.name)
        wrong.inputs, wrong.outputs = graph.inputs, graph.outputs
        wrong.nodes = [n for n in graph.nodes if n.op.is_input or n.op.name == "exp"]
        return wrong

    monkeypatch.setattr(pipeline, "PIPELINE", [pipeline.PIPELINE[0], loses_a_node, *pipeline.PIPELINE[1:]])
    graph = trace(lambda x: F.Exp()(F.Neg()(x)), ["f32[3]"])
    try:
        with pytest.raises(InternalError, match="after loses_a_node: uses a value of neg"):
            pipeline.run_pipeline(graph)
    finally:
        PASSES.pop("loses_a_node")
