"""Files of graphs that were damaged, or made to do harm: an error that says what is wrong, and nothing else."""

import json
import subprocess
import sys

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.errors import InternalError
from tandem.graph.ir import Builder, Graph, Type, Value
from tandem.graph.symbolic import Symbols
from tandem.graph.verify import verify
from tandem.ops import rules
from tandem.ops.define import PRIMITIVES, Composite, Elementwise, LibraryOp, Movement, add_input
from tests.graph import damage
from tests.graph.small import softmax_graph


def run_damage(seed: int, count: int) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "tests.graph.damage", str(seed), str(count)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_whatever_a_file_holds_is_refused_or_runs():
    found = run_damage(0, 330)
    assert not found["raw"], found["raw"][:3]
    assert found["refused"] > 100 and found["ran"] > 30


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
def test_whatever_many_files_hold_is_refused_or_runs(seed):
    found = run_damage(seed, 4000)
    assert not found["raw"], found["raw"][:3]


@pytest.mark.parametrize("name", list(damage.PROGRAMS))
def test_graphs_that_were_saved_are_loaded_and_give_the_same(name):
    graph = damage.compiled(name)
    loaded = Graph.from_json(graph.to_json())
    assert loaded.to_json() == graph.to_json()
    given = damage.inputs_for(graph)
    if name in ("index", "train"):
        given = [x.clip(0, 2) if not x.dtype.is_inexact else x for x in given]
    for a, b in zip(graph.run(*given), loaded.run(*given), strict=True):
        assert a.dtype is b.dtype
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("name", list(damage.PROGRAMS))
def test_passes_keep_to_the_rules(name):
    with td.switches(CHECK=2):
        fn, arguments = damage.PROGRAMS[name]
        td.compile(lambda *xs: fn(*xs))(*arguments)


# -- what is refused, by name


def change(name: str, /, **changes):
    def run(document):
        node = next(n for n in document["nodes"] if n["op"] == name)
        for key, value in changes.items():
            if key[-1].isdigit():
                node["fields"][int(key[5:])] = value
            else:
                node[key] = value

    return run


def everywhere(path, value):
    def run(document):
        at = document
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return run


def nested(levels: int):
    x = 1
    for _ in range(levels):
        x = ["tuple", x]
    return x


DAMAGED = [
    ("slices", change("slice", field0=["tuple", 10**7, 0]), r"slice: 2 elements from 10000000 in steps of 1 do not lie within 4"),
    ("slices", change("slice", field1=["tuple", -2, 1]), "slice: 2 elements from 1 in steps of -2 do not lie within"),
    ("slices", change("slice", field1=["tuple", 1]), "slice: starts and steps must be 2 each"),
    ("slices", change("slice", field2=["tuple", -2, 4]), "slice: sizes is -2; it must be from 0"),
    ("slices", change("slice", field2=["tuple", 2**63, 4]), "slice: its attribute sizes is .*; it must be a tuple of integers"),
    ("slices", change("slice", fields=[]), "slice: its attribute starts is missing"),
    ("slices", change("embed", field0=["tuple", 10**7, 0]), "embed: 4 elements from 10000000 in steps of 1 do not lie within"),
    ("slices", change("slice", inputs=[]), "slice: it takes 1 operands; there are 0"),
    ("slices", change("slice", types=[["type", "float32", ["tuple", 2**62, 2**62], False]]), "more bytes than 64 bits"),
    ("slices", change("slice", types=[["type", "float32", ["tuple", -2, 4], False]]), "negative size"),
    ("slices", change("slice", types=[["type", "float32", ["tuple", 2**63, 4], False]]), "no integer of 64 bits"),
    ("slices", change("slice", types=[["type", "float32", ["tuple", ["float", "nan"], 4], False]]), "nan is no integer"),
    ("slices", change("slice", types=[["type", "float32", ["tuple", 2.0, 4], False]]), "2.0 is no integer of 64 bits"),
    ("slices", change("slice", types=[["type", "float64", ["tuple", 2, 4], False]]), "its inputs make it .*f32.*but it is .*f64"),
    ("slices", change("slice", control=[99]), "refers to number 99"),
    ("products", change("matmul", inputs=[0, 0]), r"matmul: operands are .*; it takes T\[\*b,m,k\] T\[\*b,k,n\]"),
    ("reductions", change("cumulative", field0=2), "cumulative: axis is 2; there are 2 axes"),
    ("reductions", change("cumulative", field1="sort"), "cumulative: kind is 'sort'; it must be one of sum, prod"),
    ("reductions", change("reduce", field1=["tuple", 0, 0]), r"reduce: axes are \(0, 0\); each may be there once"),
    ("reductions", change("topk", field1=10), "topk: k is 10, and x is"),
    ("index", change("check_index", field0=-4), "check_index: bound is -4; it must be from 0"),
    ("index", change("iota", field1=7), "iota: axis is 7; there are 2 axes"),
    ("index", change("gather", inputs=[0]), "gather: x is .*, and there are 0 index tensors"),
    ("conv", change("conv_forward", field0=["tuple", 0, 2]), "conv_forward: stride is 0; it must be from 1|division"),
    ("conv", change("conv_forward", field4=2), "conv_forward: 2 groups do not divide 3 channels"),
    ("integers", change("shift_left", op="exp"), "exp: it takes 1 operands; there are 2"),
    ("integers", change("cast", op="floor", fields=[]), "its inputs make it|floor: operands are int64; it is not defined"),
    ("random", change("random_bits", field1=9), "random_bits: lane is 9; it must be one of 0, 1, 2, 3"),
    ("train", change("constant", field0=10**30), "constant: value is a number of 100 bits"),
    ("flow", change("scan", field1=9), "scan: it carries 9 and scans 1, of 2 operands|scan: it carries 9"),
    ("flow", change("cond", op="incoming"), "there is no operator 'incoming' here"),
    ("slices", change("slice", op="arg_extremum"), "there is no operator 'arg_extremum' here"),
    ("slices", everywhere(["nodes", 0, "inputs"], [0]), "refers to number 0, of 0 before it"),
    ("slices", everywhere(["mutations"], [[99, 0]]), "refers to number 99"),
    ("products", everywhere(["name"], nested(500)), "nested more than 400 levels deep"),
]  # fmt: skip


@pytest.mark.parametrize("name, damaging, text", DAMAGED, ids=range(len(DAMAGED)))
def test_damage_is_named(name, damaging, text):
    document = json.loads(damage.compiled(name).to_json())
    damaging(document)
    with pytest.raises(td.CheckpointError, match=text) as found:
        Graph.from_json(json.dumps(document))
    assert "this is no graph that was saved" in str(found.value)


def test_numbers_that_json_does_not_have_are_refused():
    text = damage.compiled("products").to_json()
    for number in ("NaN", "Infinity", "-Infinity"):
        with pytest.raises(ValueError, match=f"{number} is no number of a graph"):
            Graph.from_json(text[:-1] + f', "more": {number}}}')
    for more in ("9" * 5000, "[" * 100_000 + "]" * 100_000):
        with pytest.raises(td.CheckpointError, match="this is no graph that was saved"):
            Graph.from_json(text[:-1] + f', "more": {more}}}')


def test_sizes_that_come_from_nowhere_are_refused():
    f = td.compile(lambda x: x[1:] * 2)
    f(td.ones(4, 3))
    f(td.ones(5, 3))
    document = json.loads(f.graph().to_json())
    assert document["symbols"]
    for key, value in (("hint", 2**63), ("hint", 1.5), ("hint", True), ("origin", ["size", 9, 0]), ("origin", ["size", 0, 9]),
                       ("origin", ["moon"]), ("origin", [])):  # fmt: skip
        changed = json.loads(json.dumps(document))
        changed["symbols"][0][key] = value
        with pytest.raises(td.CheckpointError, match="this is no graph that was saved"):
            Graph.from_json(json.dumps(changed))


# -- what cannot be proven is checked when it runs


def test_what_depends_on_sizes_is_asked_for_the_sizes_of_the_run():
    f = td.compile(lambda x: x[1:4] * 2)
    f(td.ones(6, 2))
    f(td.ones(7, 2))
    graph = Graph.from_json(f.graph().to_json())
    assert graph.run(td.ones(9, 2), 2)[0].shape == (3, 2)
    with pytest.raises(td.ShapeError, match="slice: 3 elements from 1 in steps of 1 do not lie within"):
        graph.run(td.ones(3, 2), 2)


@pytest.mark.parametrize("name", ["gather", "scatter"])
def test_positions_are_checked_where_a_file_leaves_that_out(name):
    f = td.compile(lambda x, i: (x[i] * 2, td.index_add(x, 0, i, x[i])))
    x, i = td.rand(6, 3), td.tensor([0, 5, 2])
    f(x, i)
    document = json.loads(f.graph().to_json())
    index = next(k for k, n in enumerate(document["nodes"]) if n["op"] == "input" and n["types"][0][1] == "int64")
    for node in document["nodes"]:
        if node["op"] == name:
            node["inputs"][-1] = index
    graph = Graph.from_json(json.dumps(document))
    numbers = [2] * (len(graph.inputs) - 2)
    graph.run(x, i, *numbers)
    with pytest.raises(td.IndexRangeError):
        graph.run(x, td.tensor([0, -5, 2]), *numbers)


def test_deferred_programs_are_held_to_the_rules_too():
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (4, 4), name="x")
        y = td.placeholder(td.float32, (None, 4), name="y")
        td.session.identity(td.abs(x), name="known"), td.session.identity(td.abs(y), name="unknown")
    for name, at_load in (("abs", True), ("abs_1", False)):
        document = json.loads(graph.to_json())
        node = next(n for n in document["nodes"] if n["name"] == name)
        node |= {"op": "Primitive", "fields": [["op", "slice", ["tuple", 10**7, 0], ["tuple", 1, 1], ["tuple", 4, 4]]]}
        if at_load:
            with pytest.raises(ValueError, match=r"node 'abs' .*slice: 4 elements from 10000000"):
                td.Graph.from_json(json.dumps(document))
        else:
            session = td.Session(td.Graph.from_json(json.dumps(document)))
            with pytest.raises(td.ShapeError, match="slice: 4 elements from 10000000"):
                session.run("unknown:0", {"y": td.ones(4, 4)})
    node |= {"fields": [["op", "slice", ["tuple", 1, 0], ["tuple", 2, 1], ["tuple", 2, 4]]],
             "types": [["type", "float32", ["tuple", 2, 4], False]]}  # fmt: skip
    document["nodes"] = [n for n in document["nodes"] if n["name"] != "unknown"]
    session = td.Session(td.Graph.from_json(json.dumps(document)))
    assert session.run("abs_1:0", {"y": td.ones(4, 4)}).shape == (2, 4)
    with pytest.raises(td.ShapeError, match="slice: 2 elements from 1 in steps of 2"):
        session.run("abs_1:0", {"y": td.ones(3, 4)})


def test_sizes_of_deferred_programs_are_sizes():
    with td.Graph() as graph:
        td.session.identity(td.placeholder(td.float32, (None, 4), name="x"), name="y")
    document = json.loads(graph.to_json())
    for path, value in ((["symbols", 0, "hint"], 2**70), (["symbols", 0, "origin"], ["moon"]), (["nodes", 0, "types", 0, 2, 1], -4),
                        (["nodes", 0, "types", 0, 2, 2], 2**63), (["nodes", 0, "name"], nested(500))):  # fmt: skip
        changed = json.loads(json.dumps(document))
        everywhere(path, value)(changed)
        with pytest.raises(td.CheckpointError, match="this is no graph that was saved"):
            td.Graph.from_json(json.dumps(changed))


# -- the rules


def applied(op, *types: Type) -> Graph:
    graph = Graph(Symbols(), "one")
    with Builder(graph) as builder:
        values = [add_input(builder, t) for t in types]
        made = op(*values)
        graph.outputs = [made] if isinstance(made, Value) else list(made)
    return graph


def test_the_verifier_asks_the_rules():
    from tandem.ops.movement import Slice

    f32 = Type(td.float32, (4, 4))
    verify(applied(Slice((1, 0), (1, 1), (3, 4)), f32))
    with pytest.raises(InternalError, match="slice: 3 elements from 2"):
        verify(applied(Slice((2, 0), (1, 1), (3, 4)), f32))
    with td.switches(CHECK=2), pytest.raises(InternalError, match="after simplify: 3 elements from 2"):
        verify(applied(Slice((2, 0), (1, 1), (3, 4)), f32), "simplify")


def test_every_operator_says_what_it_takes():
    """By `takes`, by a rule, or because it has no operands; elementwise operators have one rule."""
    silent = []
    for name, kind in PRIMITIVES.items():
        if not kind.__module__.startswith("tandem.ops") or not issubclass(
            kind, (Elementwise, Movement, Composite, LibraryOp)
        ):
            continue
        own = any("rule" in c.__dict__ for c in kind.__mro__[:-2] if c.__name__ != "Op")
        if not kind.takes and not own:
            silent.append(name)
    assert not silent


@pytest.mark.parametrize("dtype", [td.float32, td.float16, td.int32, td.uint8, td.bool, td.complex64])
def test_elementwise_operators_that_are_allowed_compile(dtype):
    names = [n for n, k in PRIMITIVES.items() if issubclass(k, Elementwise) and not k._fields]
    ran = 0
    for name in names[:: 1 if dtype is td.float32 else 3]:
        op = PRIMITIVES[name]()
        types = [Type(dtype, (3,))] * rules._counts(type(op))[0]
        try:
            rules.obey(op, types)
        except (td.TandemError, td.DTypeError):
            continue
        graph = applied(op, *types)
        assert graph.run(*[td.ones(3, dtype=dtype) for _ in types])[0].dtype is graph.outputs[0].dtype
        ran += 1
    assert ran >= 3


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
