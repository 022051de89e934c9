"""Control inputs and devices of nodes: kept by every tool, respected by every pass and by code generation."""

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tandem.codegen import Layout, lower
from tandem.devices import CPU, named
from tandem.errors import InternalError
from tandem.graph.ir import Graph, current_builder, placed, revise
from tandem.graph.verify import verify
from tandem.ops.define import LibraryOp
from tandem.passes import pipeline
from tandem.passes.common_subexpressions import common_subexpressions
from tandem.passes.eliminate_dead import eliminate_dead
from tandem.passes.fold_constants import fold_constants
from tandem.passes.merge_matmuls import merge_matmuls
from tandem.passes.reassociate_matmul import reassociate_matmul
from tandem.passes.simplify import simplify
from tests.pages.data import data_in
from tests.passes.check import check_pass, trace


def after(*values, device=None):
    """Nodes made inside wait for what made these values."""
    return placed(current_builder(), [v.node for v in values], device)


def checked(x, i):
    """x * 2, which waits for a check of i that nobody reads."""
    check = F.CheckIndex(3, 0)(i)
    with after(check, device=CPU):
        return F.Mul()(x, x)


TYPES = ["f32[3,4]", "i64[5]"]


# -- tools


def test_they_are_printed_saved_and_drawn(tmp_path):
    graph = trace(checked, TYPES)
    assert "mul(%0, %0) after %2 on cpu" in str(graph)
    graph.save(tmp_path / "graph.json")
    loaded = Graph.load(tmp_path / "graph.json")
    verify(loaded)
    assert str(loaded) == str(graph) and loaded.to_json() == graph.to_json()
    node = loaded.nodes[-1]
    assert node.control == (loaded.nodes[-2],) and node.device == "cpu"
    level = data_in(graph.view())["levels"]["operators"]
    assert [e[3] for e in level["edges"] if e[4:] == [1]] == ["mul waits for check_index"]
    assert "on cpu" in level["nodes"][-1]["note"]


def test_files_of_the_format_before_are_read():
    text = trace(lambda x, i: F.Neg()(x), TYPES).to_json()
    for version in (1, 2):
        old = text.replace('"format": 3', f'"format": {version}')
        assert old != text and str(Graph.from_json(old)) == str(Graph.from_json(text))


def test_nodes_cannot_be_made_to_wait_for_something_else():
    node = trace(checked, TYPES).nodes[-1]
    for name in ("control", "device"):
        with pytest.raises(AttributeError, match="graphs are immutable"):
            setattr(node, name, None)


def test_the_verifier_wants_them_before_the_node():
    graph = trace(checked, TYPES)
    graph.nodes[-1], graph.nodes[-2] = graph.nodes[-2], graph.nodes[-1]
    with pytest.raises(InternalError, match=r"waits for check_index.*, which comes later or not at all"):
        verify(graph)


def test_the_builder_keeps_places_apart():
    def fn(x, i):
        a = F.Neg()(x)
        with after(F.CheckIndex(3, 0)(i)):
            b = F.Neg()(x)
            c = F.Neg()(x)
        with after(device=CPU):
            d = F.Neg()(x)
        return a, b, c, d

    a, b, c, d = trace(fn, TYPES).outputs
    assert b is c and a is not b and a is not d and d.node.device == "cpu" and not d.node.control


def test_scopes_add_up():
    def fn(x, i):
        one, two = F.Neg()(x), F.Exp()(x)
        with after(one, device=CPU), after(two):
            return F.Abs()(x)

    (value,) = trace(fn, TYPES).outputs
    assert [n.op.name for n in value.node.control] == ["neg", "exp"] and value.node.device == "cpu"


# -- passes


def kept(graph):
    """The graph's lines after all passes."""
    return str(pipeline.run_pipeline(graph))


def test_what_something_live_waits_for_is_live():
    def live(x, i):
        with after(F.Exp()(x)):
            return F.Neg()(x)

    assert [n.op.name for n in eliminate_dead(trace(live, TYPES)).nodes] == ["input", "input", "exp", "neg"]

    def dead(x, i):
        with after(F.Exp()(x)):
            F.Abs()(x)
        return F.Neg()(x)

    assert [n.op.name for n in eliminate_dead(trace(dead, TYPES)).nodes] == ["input", "input", "neg"]


def test_what_waits_is_not_merged_with_what_does_not():
    def fn(x, i):
        check = F.CheckIndex(3, 0)(i)
        with after(check):
            late = F.Add()(x, F.Exp()(x))
        return F.Add()(x, F.Exp()(x)), late

    check_pass(common_subexpressions, fn, fn, TYPES)


def test_devices_are_not_merged_either():
    def fn(x, i):
        with after(device=CPU):
            here = F.Mul()(x, F.Exp()(x))
        with after(device=named("cuda:0")):
            there = F.Mul()(F.Exp()(x), x)
        return here, there

    text = str(common_subexpressions(trace(fn, TYPES)))
    assert text.count("mul(") == 2 and "on cuda:0" in text


def test_a_rule_leaves_what_waits_alone_and_keeps_devices():
    def fn(x, i):
        with after(F.CheckIndex(3, 0)(i)):
            y = F.Neg()(x)
        with after(device=CPU):
            z = F.Neg()(F.Neg()(F.Sub()(x, F.Neg()(F.Exp()(x)))))
        return F.Neg()(y), z

    text = str(simplify(trace(fn, TYPES)))
    assert "neg(%0) after %" in text and text.count("neg(") == 2  # -(-x) would forget to wait
    assert "add(%0, %4) on cpu" in text and "exp(%0) on cpu" in text


def test_what_waits_for_something_replaced_waits_for_what_stands_for_it():
    def before(x, i):
        y = F.Neg()(F.Neg()(F.Exp()(x)))
        with after(y):
            return F.Abs()(x)

    def expected(x, i):
        with after(F.Exp()(x)):
            return F.Abs()(x)

    result = check_pass(simplify, before, expected, TYPES)
    (node,) = [n for n in result.nodes if n.op.name == "abs"]
    assert [n.op.name for n in node.control] == ["exp"]


def test_constants_are_folded_but_not_what_waits():
    def fn(x, i):
        a, b = F.Constant(2.0, td.float32)(), F.Constant(3.0, td.float32)()
        with after(F.CheckIndex(3, 0)(i)):
            late = F.Add()(a, b)
        return late, F.Add()(a, b)

    text = str(fold_constants(trace(fn, TYPES)))
    assert text.count("add(") == 1 and "add(%2, %3) after %4" in text and "value=5.0" in text


def test_products_that_wait_stay_where_they_are():
    def chain(a, b, v, i):
        with after(F.CheckIndex(3, 0)(i)):
            inner = F.Matmul()(a, b)
        return F.Matmul()(inner, v)

    check_pass(reassociate_matmul, chain, chain, ["f32[300,300]", "f32[300,300]", "f32[300,1]", "i64[5]"])

    def side_by_side(x, w, i):
        one = F.Matmul()(x, F.Slice((0, 0), (1, 1), (384, 384))(w))
        with after(F.CheckIndex(3, 0)(i)):
            return one, F.Matmul()(x, F.Slice((0, 384), (1, 1), (384, 384))(w))

    check_pass(merge_matmuls, side_by_side, side_by_side, ["f32[512,384]", "f32[384,768]", "i64[5]"])


def test_composites_wait_in_all_their_parts():
    def fn(x, i):
        with after(F.CheckIndex(3, 0)(i), device=CPU):
            return td.softmax(x, 1)

    graph = pipeline.run_pipeline(trace(fn, TYPES))
    made = [n for n in graph.nodes if n.op.name not in ("input", "check_index", "constant")]
    assert len(made) > 3 and all(n.control and n.device == "cpu" for n in made)


def test_the_whole_pipeline_keeps_them():
    graph = trace(checked, TYPES)
    assert kept(graph) == str(graph)


# -- code generation


def layouts(graph):
    return [Layout(tuple(range(v.ndim)), None) for v in graph.inputs]


def steps_of(fn, types):
    graph = pipeline.run_pipeline(trace(fn, types))
    schedule = lower(graph, layouts(graph))
    return [[n.op.name for n in s.nodes] if hasattr(s, "nodes") else [s.routine] for s in schedule.steps]


def test_a_check_that_nobody_reads_runs_before_what_waits_for_it():
    assert steps_of(checked, TYPES) == [["check_index"], ["mul"]]


def test_a_kernel_does_not_take_in_what_must_wait():
    def fused(x, i):
        y = F.Exp()(x)
        F.CheckIndex(3, 0)(i)
        return y, F.Abs()(y)

    def apart(x, i):
        y = F.Exp()(x)
        check = F.CheckIndex(3, 0)(i)
        with after(check):
            return y, F.Abs()(y)

    assert steps_of(fused, TYPES) == [["exp", "abs"], ["check_index"]]
    assert steps_of(apart, TYPES) == [["exp"], ["check_index"], ["abs"]]


def test_what_is_computed_along_the_way_makes_its_user_wait():
    """neg has no memory of its own: the kernel of abs computes it, and must come after the check."""

    def fn(x, i):
        y = F.Exp()(x)
        with after(F.CheckIndex(3, 0)(i)):
            z = F.Neg()(x)
        return y, F.Sin()(F.Mul()(z, y))

    steps = steps_of(fn, TYPES)
    assert steps[0] == ["exp"] and steps[1] == ["check_index"] and "neg" in steps[2]


def test_something_without_memory_that_is_waited_for_is_computed():
    def fn(x, i):
        wait = F.Exp()(x)  # nobody reads it
        with after(wait):
            return F.Neg()(x)

    assert steps_of(fn, TYPES) == [["exp"], ["neg"]]


def test_an_effect_runs_though_nobody_reads_or_waits_for_it():
    class Shout(LibraryOp):
        name, routine, effect = "shout", "copy", True

        def infer(self, x):
            return x

        def attributes(self, x):
            return (), ()

    def fn(x, i):
        Shout()(x)
        Shout()(x)
        return F.Neg()(x)

    assert sum(step == ["copy"] for step in steps_of(fn, TYPES)) == 2


# -- deferred programs


def test_deferred_nodes_have_them():
    with td.Graph():
        x = td.placeholder(td.float32, [3])
        a = x * 2
        with td.session.control_dependencies([a]), td.device("cpu"):
            b = x + 1
    assert b.node.control == (a.node,) and b.node.device == "cpu" and not a.node.control
    assert type(b.node).control is td.graph.ir.Node.control  # the very attribute of every node


def test_a_run_fails_where_something_it_waits_for_fails():
    """Nobody reads the rows: only waiting makes the check run."""
    with td.Graph() as g:
        x, i = td.placeholder(td.float32, [3]), td.placeholder(td.int64, [None])
        rows = td.take(x, i) * 2
        group = td.session.group(rows)
        with td.session.control_dependencies([group]):
            y = x + 1
        v = td.Variable(td.zeros(3))
        with td.session.control_dependencies([rows]):
            write = v.assign(x)
    with g, td.Session(g) as session:
        session.run(td.session.global_variables_initializer())
        data = np.arange(3.0, dtype=np.float32)
        assert session.run(y, {x: data, i: [0, 2]}).tolist() == [1, 2, 3]
        for fetch in (y, write):
            with pytest.raises(IndexError, match="7"):
                session.run(fetch, {x: data, i: [0, 7]})
        assert session.run(v).tolist() == [0, 0, 0]
        session.run(write, {x: data, i: [0]})
        assert session.run(v).tolist() == [0, 1, 2]


def test_a_node_on_a_device_that_is_not_here_is_refused_by_name():
    with td.Graph() as g:
        x = td.placeholder(td.float32, [3])
        with td.device("cpu"):
            a = x * 2
        b = a + 1
        revise(b.node, "device", named("cuda:14"))
    with td.Session(g) as session:
        assert session.run(a, {x: [1, 2, 3]}).tolist() == [2, 4, 6]
        with pytest.raises(td.DeviceError, match="'add' is to run on cuda:14, where it cannot"):
            session.run(b, {x: [1, 2, 3]})


# -- compiled functions


def test_device_scopes_are_on_the_nodes_of_compiled_functions():
    @td.compile
    def f(x):
        y = x.exp()
        with td.device("cpu"):
            y = y.sin() + y
        return y.cos()

    x = td.ones(3)
    np.testing.assert_allclose(f(x).numpy(), np.cos(np.sin(np.exp(np.ones(3))) + np.exp(1)), rtol=1e-5)
    device = {n.op.name: n.device for n in f.graph().nodes}
    assert device["sin"] == device["add"] == "cpu" and device["exp"] is None and device["cos"] is None
    loaded = Graph.from_json(f.graph().to_json())
    np.testing.assert_allclose(loaded.run(x)[0].numpy(), f(x).numpy(), rtol=1e-6)


def test_a_graph_for_another_device_is_refused():
    graph = trace(lambda x, i: F.Neg()(x), TYPES)
    text = graph.to_json().replace('"op": "neg"', '"device": "cuda:0", "op": "neg"')
    with pytest.raises(td.DeviceError, match="available"):
        Graph.from_json(text).run(td.ones(3, 4), td.arange(5))


def test_a_loaded_graph_still_waits():
    graph = Graph.from_json(trace(checked, TYPES).to_json())
    assert graph.run(td.full((3, 4), 3.0), td.zeros(5, dtype=td.int64))[0].tolist() == [[9.0] * 4] * 3
    with pytest.raises(IndexError):
        graph.run(td.ones(3, 4), td.full((5,), 9))
