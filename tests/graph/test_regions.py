"""Regions in the IR: printing, verifying, JSON, pictures."""

import pytest

import tandem.ops as F
from tandem import dtypes
from tandem.errors import InternalError
from tandem.graph.ir import Builder, Graph, Type
from tandem.graph.verify import verify
from tandem.ops.define import add_input
from tandem.ops.region import Cond, Scan, While, region_graph

F32 = Type(dtypes.float32, (3,))
INT = Type(dtypes.int64, ())


def running_sum(length=5):
    """carry + row, and the carry as a row of the result."""
    graph = Graph(name="test")
    with Builder(graph) as builder:
        start = add_input(builder, F32)
        rows = add_input(builder, Type(dtypes.float32, (length, 3)))
        body = region_graph(graph.symbols, "body", [F32, F32, INT], lambda c, x, i: [F.Add()(c, x), F.Neg()(c)])
        graph.outputs = list(Scan(body, 1, 1, length, False)(start, rows))
    return graph


def test_scan_has_the_last_carry_and_stacked_rows():
    graph = running_sum()
    verify(graph)
    assert [repr(v.type) for v in graph.outputs] == ["f32[3]", "f32[5,3]"]


def test_a_printed_region_shows_its_graphs():
    text = str(running_sum())
    assert "%2: f32[3], %3: f32[5,3] = scan[carried=1, scanned=1, length=5, reverse=False](%0, %1)" in text
    assert "\n  body:\n    %0: f32[3] = input()" in text
    assert "    return %3, %4" in text


def test_regions_go_through_json():
    graph = running_sum()
    again = Graph.from_json(graph.to_json())
    verify(again)
    assert str(again) == str(graph)


def test_regions_are_drawn():
    assert "scan" in running_sum().view()


def test_carried_types_must_stay_the_same():
    graph = Graph(name="test")
    with Builder(graph) as builder:
        start = add_input(builder, F32)
        body = region_graph(graph.symbols, "body", [F32, INT], lambda c, i: [F.Cast(dtypes.float64)(c)])
        with pytest.raises(InternalError, match="carries"):
            Scan(body, 1, 0, 4, False)(start)


def test_nothing_inside_looks_outside():
    graph = Graph(name="test")
    with Builder(graph) as builder:
        start = add_input(builder, F32)
        body = region_graph(graph.symbols, "body", [F32, INT], lambda c, i: [F.Add()(c, start)])
        graph.outputs = [Scan(body, 1, 0, 4, False)(start)]
    with pytest.raises(InternalError, match="not at all"):
        verify(graph)


def test_while_counts_and_cond_has_branches():
    graph = Graph(name="test")
    scalar = Type(dtypes.float32, ())
    with Builder(graph) as builder:
        x = add_input(builder, scalar)
        cond = region_graph(
            graph.symbols, "cond", [scalar, INT], lambda v, i: [F.Less()(v, F.Constant(9.0, v.dtype)())]
        )
        body = region_graph(graph.symbols, "body", [scalar, INT], lambda v, i: [F.Add()(v, v)])
        last, count = While(cond, body, 1, None)(x)
        yes, no = (region_graph(graph.symbols, name, [scalar], fn) for name, fn in (
            ("false", lambda v: [v]), ("true", lambda v: [F.Neg()(v)])))  # fmt: skip
        graph.outputs = [Cond((yes, no))(F.Less()(x, last), last), count]
    verify(graph)
    assert [repr(v.type) for v in graph.outputs] == ["f32[]", "i64[]"]
