"""Graphs."""

import pytest

from tests.graph.small import softmax_graph


def test_nothing_of_a_graph_can_be_changed_from_outside():
    graph = softmax_graph()
    node = graph.nodes[-1]
    for change in (
        lambda: setattr(node, "op", None),
        lambda: setattr(node, "inputs", ()),
        lambda: setattr(node.outputs[0], "type", None),
        lambda: setattr(graph, "outputs", ()),
        lambda: graph.nodes.append(node),
    ):
        with pytest.raises(AttributeError):
            change()
