"""What computes read, and the order of loops that follows from it."""

import pytest

import tandem.ops as F
from tandem.codegen.cpu.target import CPU
from tandem.codegen.fuse import Fusion
from tests.passes.check import trace


def compute_of(f, inputs):
    """The compute of f's result, and its graph's inputs."""
    graph = trace(f, inputs)
    return Fusion(graph, [None] * len(inputs), [], CPU).computes[graph.outputs[0]], graph.inputs


def test_movements_become_axis_maps():
    found, (x, y) = compute_of(
        lambda x, y: F.Add()(F.Permute((1, 0))(x), F.Expand((5, 3))(y)), ["f32[3,5]", "f32[1,3]"]
    )
    assert dict(found.reads) == {x: (1, 0), y: (-1, 1)}


def test_positions_that_are_computed_have_no_map():
    found, (x, _) = compute_of(lambda x, i: F.Exp()(F.Gather()(x, F.CheckIndex(7, 0)(i))), ["f32[7]", "i64[4]"])
    assert dict(found.reads)[x] is None


def test_loops_run_as_the_memory_that_is_read_lies():
    found, _ = compute_of(lambda x: F.Exp()(F.Permute((1, 0))(x)), ["f32[3,5]"])
    assert found.order == (1, 0)


@pytest.mark.parametrize("inputs", [["f32[64,200]", "f32[200,64]"]])
def test_where_orders_differ_rows_come_first(inputs):
    found, _ = compute_of(lambda x, y: F.Add()(x, F.Permute((1, 0))(y)), inputs)
    assert found.order == (0, 1) and found.units == {0, 1}
