"""Hand-wired graphs that make no sense are refused."""

import pytest

import tandem as td
from tandem.graph.ir import revise
from tests.session.loops import counting_loop, ops


@pytest.fixture
def graph():
    with td.Graph() as g:
        yield g


def scalar(name="x", dtype=td.float32):
    return td.placeholder(dtype, (), name=name)


# -- malformed wiring


def refused(graph, fetch, match, feeds=None):
    with pytest.raises(td.ValueRangeError, match=match) as caught:
        td.Session(graph).run(fetch, feeds or {})
    assert "at tests/session/" in str(caught.value)
    assert "  in '" in str(caught.value)


def test_values_do_not_cross_frames(graph):
    n, y = scalar("n", td.int32), scalar("y", td.int32)
    result, body = counting_loop(td.tensor(0, dtype=td.int32), n, step=lambda i: i + y)
    refused(graph, result, "values cross frames through Enter and Exit only", {n: 3, y: 1})
    _, body = counting_loop(td.tensor(0, dtype=td.int32), n, "second")
    refused(graph, body + n, "cross frames", {n: 3})
    refused(graph, body, "is fetched, but it is inside frame 'second'", {n: 3})


def test_parts_of_loops_stand_in_loops(graph):
    x = scalar()
    refused(graph, ops.exit(x), "an Exit stands outside of every loop", {x: 1})
    refused(graph, ops.merge([x, ops.next_iteration(x)]).output, "a NextIteration stands outside of every loop", {x: 1})
    refused(graph, ops.loop_cond(x < 1), "a LoopCond stands outside", {x: 1})


def test_a_merge_that_can_never_fire(graph):
    x = scalar()
    merged = ops.merge([x]).output
    ops.close_loop(merged, ops.next_iteration(merged + 1))
    revise(merged.node, "inputs", merged.node.inputs[1:])
    refused(graph, merged, "can never fire", {x: 1})
    with pytest.raises(td.ValueRangeError, match="can never fire"):
        ops.merge([])


def test_loops_without_an_end_or_a_way_out(graph):
    n = scalar("n")
    i = ops.merge([ops.enter(n, "f")]).output
    out, body = ops.switch(i, i < 3)
    ops.close_loop(i, body + 1)
    refused(graph, ops.exit(out), "has no LoopCond", {n: 1})
    j = ops.merge([ops.enter(n, "g")]).output
    k = ops.merge([ops.enter(n, "g")]).output
    out, body = ops.switch(j, ops.loop_cond(j + k < 3))
    ops.close_loop(j, body + 1)
    refused(graph, ops.exit(out), "none that comes round", {n: 1})
    inside = ops.enter(n, "h") + 1
    refused(graph, td.group(inside), "no Exit leads out of frame 'h'", {n: 1})


def test_a_value_of_the_first_iteration_only(graph):
    n = scalar("n")
    once = ops.enter(n, "f")
    i = ops.merge([ops.enter(n, "f")]).output
    out, body = ops.switch(i, ops.loop_cond(i < 3))
    ops.close_loop(i, body + once)
    refused(graph, ops.exit(out), "first iteration only", {n: 1})


def test_types_are_checked_when_building(graph):
    x = td.placeholder(td.float32, (2,))
    with pytest.raises(td.DTypeError, match="it must be a single bool"):
        ops.switch(x, x < 1)
    with pytest.raises(td.DTypeError, match="it must be a single bool"):
        ops.loop_cond(x.sum())
    with pytest.raises(td.DTypeError, match="one dtype and number of axes"):
        ops.merge([x, x.sum()])
    with pytest.raises(td.ValueRangeError, match="at least one iteration"):
        ops.enter(x, "f", parallel_iterations=0)
