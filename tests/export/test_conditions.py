"""What plans rely on becomes part of exported graphs, where it does not hold for all sizes."""

import pytest

import tandem as td
from tandem.export.trace import trace
from tandem.graph.ir import Graph


def refused(fn, *shape):
    return list(trace(fn, (td.randn(*shape),)).graph.symbols.reasons.values())


def test_functions_that_are_right_for_all_sizes_refuse_none():
    assert [] == refused(lambda x: x.softmax(-1).sum(0), 6, 4)
    assert [] == refused(lambda x: x[1:] - x[:-1], 6, 4)
    assert [] == refused(lambda x: x[-3:], 6, 4)  # one row of one, as Python's slices do
    assert [] == refused(td.nn.Sequential(td.nn.Conv2d(3, 4, 3), td.nn.BatchNorm2d(4), td.nn.ReLU()).eval(), 6, 3, 8, 8)


def test_what_a_plan_relies_on_names_the_operator_and_the_line():
    (reason,) = refused(lambda x: td.nn.functional.pad(x, (0, 0, 2, 2), mode="reflect"), 6, 4)
    assert reason.startswith("axis 0 of 'x' must have 3 elements or more: pad: ")


def test_reasons_are_in_files():
    graph = trace(lambda x: x.squeeze(0), (td.randn(6, 4),)).graph
    assert list(graph.symbols.reasons.values()) == list(Graph.from_json(graph.to_json()).symbols.reasons.values()) != []


def test_shapes_that_follow_in_no_way_are_refused():
    fn = lambda x: td.zeros(2, 3) if x.shape[0] in (48, 64) else td.zeros(3, 2)
    with pytest.raises(td.UnsupportedError, match="axis 0 of 'x' has 48 or 7919 elements"):
        trace(fn, (td.randn(6, 4),), {"x": (0,)})
