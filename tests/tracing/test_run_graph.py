"""Graphs that run themselves."""

import pytest

import tandem as td
from tests.graph.small import softmax_graph


def test_running_a_graph_checks_what_it_is_given():
    graph = softmax_graph()
    rows = graph.run(td.ones(4, 3), 2)[0]
    assert rows.shape == (4, 3)
    with pytest.raises(td.ShapeError, match=r"input 0 is f32\[s0,3\]; a tensor of shape \(4, 2\)"):
        graph.run(td.ones(4, 2), 2)
    with pytest.raises(td.DTypeError, match="input 0 is"):
        graph.run(td.ones(4, 3, dtype=td.float64), 2)
    with pytest.raises(td.ValueRangeError, match="2 inputs"):
        graph.run(td.ones(4, 3))
