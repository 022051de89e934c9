"""The verifier."""

import pytest

import tandem as td
import tandem.ops as F
from tandem.errors import InternalError
from tandem.graph.ir import Graph, Node, Type
from tandem.graph.verify import verify
from tests.graph.small import softmax_graph
from tests.passes.check import trace


def test_the_verifier_names_what_is_wrong():
    def broken(change):
        graph = Graph.from_json(softmax_graph().to_json())
        verify(graph)
        change(graph)
        with pytest.raises(InternalError) as caught:
            verify(graph)
        return str(caught.value)

    assert "is in the graph twice" in broken(lambda g: g.nodes.append(g.nodes[-1]))
    assert "comes later or not at all" in broken(lambda g: g.nodes.reverse())
    assert "which no node of the graph makes" in broken(lambda g: setattr(g, "outputs", [softmax_graph().outputs[0]]))
    assert "input 7 is to take" in broken(lambda g: setattr(g, "mutations", [(7, g.outputs[0])]))


def small(x):
    return F.Reduce("sum", (1,))(F.Exp()(F.Neg()(x)))


def test_wrong_graphs_are_refused():
    verify(trace(small, ["f32[3,4]"]))
    late = trace(small, ["f32[3,4]"])
    late.nodes[1], late.nodes[2] = late.nodes[2], late.nodes[1]
    with pytest.raises(InternalError, match="after x: uses a value of neg, which comes later or not at all"):
        verify(late, "x")
    wrong = trace(small, ["f32[3,4]"])
    wrong.nodes.append(Node(F.Neg(), (wrong.inputs[0],), (Type(td.float32, (3,)),), "train.py:7", 4))
    with pytest.raises(InternalError, match=r"its inputs make it .*f32\[3,4\].* but it is .*f32\[3\].*train\.py:7"):
        verify(wrong)
    lost = trace(small, ["f32[3,4]"])
    lost.outputs = trace(small, ["f32[3,4]"]).outputs
    with pytest.raises(InternalError, match="which no node of the graph makes"):
        verify(lost)
