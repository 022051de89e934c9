"""Graphs cut into parts: every part is run here by itself, and gets what crosses by a message."""

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tandem.devices import named
from tandem.graph.ir import Builder, Graph, Type, placed
from tandem.ops.define import add_input
from tandem.placement.partition import partition

A, B, C = (f"/job:worker/task:{i}/device:cpu" for i in range(3))


class on:
    """Nodes inside are bound to a device of some task."""

    def __init__(self, device):
        self.device = device

    def __enter__(self):
        self.scope = placed(_builder[-1], (), named(self.device))
        self.scope.__enter__()

    def __exit__(self, *exc):
        self.scope.__exit__()


_builder: list = []


def build(make, inputs: int, shape=(3,)):
    graph = Graph()
    with Builder(graph) as builder:
        _builder.append(builder)
        values = [add_input(builder, Type(td.float32, shape)) for _ in range(inputs)]
        result = make(*values)
        _builder.pop()
    if isinstance(result, dict):
        graph.outputs, graph.mutations = result["outputs"], result["writes"]
    else:
        graph.outputs = list(result) if isinstance(result, tuple) else [result]
    return graph


def run(graph, devices, given):
    """What the parts give together: each sees what its task has, and messages."""
    cut = partition(graph, devices, devices[0])
    memory = {(v, d): x for v, d, x in zip(graph.inputs, devices, given, strict=True)}  # (value, device) -> tensor
    sent = []

    def send(crossings):
        for c in crossings:
            sent.append(c.key)
            memory[c.value, c.destination] = memory[c.value, c.source].clone()

    send(cut.crosses)
    for part in cut.parts:
        results = part.graph.run(*(memory[v, part.device] for v in part.takes))
        for value, x in zip(part.gives, results, strict=True):
            memory[value, part.device] = x
        send(part.crosses)
    assert len(sent) == len(set(sent)) == len(cut.crossings)
    return cut, [memory[v, d] for v, d in cut.results]


def tensors(count):
    return [td.tensor(np.random.default_rng(i).standard_normal(3).astype(np.float32)) for i in range(count)]


def test_a_value_crosses_once_for_each_device_that_reads_it():
    def make(x):
        with on(A):
            y = F.Exp()(x)
        with on(B):
            p, q = F.Neg()(y), F.Abs()(y)
        with on(C):
            r = F.Sin()(y)
        return p, q, r

    (x,) = tensors(1)
    cut, results = run(build(make, 1), [A], [x])
    assert [(c.source, c.destination) for c in cut.crossings] == [(A, B), (A, C)]
    assert [p.device for p in cut.parts] == [A, B, C] and [len(cut.of(d)) for d in (A, B, C)] == [1, 1, 1]
    y = x.exp()
    for actual, expected in zip(results, (-y, y.abs(), y.sin()), strict=True):
        assert td.allclose(actual, expected)


def test_what_goes_there_and_back_is_two_parts_of_one_device():
    def make(x, w):
        y = F.Mul()(x, w)
        with on(B):
            z = F.Exp()(y)
        with on(A):
            return F.Add()(z, y)

    x, w = tensors(2)
    cut, (result,) = run(build(make, 2), [A, A], [x, w])
    assert [(p.device, p.stage) for p in cut.parts] == [(A, 0), (B, 1), (A, 2)]
    assert td.allclose(result, (x * w).exp() + x * w)


def test_a_transfer_there_and_back_crosses_nothing():
    def make(x):
        return F.Neg()(F.Transfer(A, B)(F.Transfer(B, A)(F.Exp()(x))))

    (x,) = tensors(1)
    cut, (result,) = run(build(make, 1), [A], [x])
    assert not cut.crossings and len(cut.parts) == 1
    assert td.allclose(result, -x.exp())


def test_numbers_and_sizes_are_computed_where_they_are_read():
    def make(x):
        two = F.Mul()(F.Constant(1.0, td.float32)(), F.Constant(2.0, td.float32)())
        with on(A):
            y = F.Mul()(x, two)
        with on(B):
            return F.Mul()(y, two)

    (x,) = tensors(1)
    cut, (result,) = run(build(make, 1), [A], [x])
    assert len(cut.crossings) == 1
    assert td.allclose(result, x * 4)


def test_parts_that_need_nothing_of_one_another_are_of_one_stage():
    def make(x, y):
        with on(A):
            p = F.Exp()(x)
        with on(B):
            q = F.Exp()(y)
        with on(C):
            return F.Add()(p, q)

    x, y = tensors(2)
    cut, (result,) = run(build(make, 2), [A, B], [x, y])
    assert [(p.device, p.stage) for p in cut.parts] == [(A, 0), (B, 0), (C, 1)]
    assert td.allclose(result, x.exp() + y.exp())


@pytest.mark.parametrize("late", [False, True])
def test_an_input_is_written_after_everybody_has_read_it(late):
    def make(x, w):
        with on(A):
            new = F.Add()(w, F.Constant(1.0, td.float32)())  # could be written at once
        with on(B):
            y = F.Exp()(x)
        with on(A):
            z = F.Mul()(y, w) if late else F.Mul()(y, y)
        return {"outputs": [z], "writes": [(1, new)]}

    x, w = tensors(2)
    before = w.clone()
    cut, (result,) = run(build(make, 2), [B, A], [x, w])
    assert td.allclose(w, before + 1)
    assert td.allclose(result, x.exp() * (before if late else x.exp()))
    assert [p.stage for p in cut.parts if p.graph.mutations] == ([1] if late else [0])


def test_what_is_written_waits_for_what_may_fail():
    def make(w):
        with on(A):
            new = F.Add()(w, w)
        with on(B):
            checked = F.Sqrt()(new)
        return {"outputs": [checked], "writes": [(0, new)]}

    graph = build(make, 1)
    cut = partition(graph, [A], A, may_fail=lambda node: node.op.name == "sqrt")
    assert [(p.device, p.stage, len(p.graph.mutations)) for p in cut.parts] == [(A, 0, 0), (B, 1, 0), (A, 2, 1)]


def test_a_part_has_no_node_of_another_device():
    def make(x, w):
        with on(A):
            y = F.Exp()(x)
        with on(B):
            y = F.Mul()(y, w)
        with on(A):
            y = F.Add()(y, x)
        with on(B):
            return F.Sin()(y)

    graph = build(make, 2)
    cut, (result,) = run(graph, [A, B], tensors(2))
    assert [[n.op.name for n in p.graph.nodes if n.op.name != "input"] for p in cut.parts] == [
        ["exp"],
        ["mul"],
        ["add"],
        ["sin"],
    ]
    x, w = tensors(2)
    assert td.allclose(result, (x.exp() * w + x).sin())
    assert all(node.device is None for p in cut.parts for node in p.graph.nodes)
