import numpy as np

import tandem as td
import tandem.ops as F
from tandem.codegen.expand import expand
from tandem.graph.ir import Builder, Graph, Type
from tandem.graph.symbolic import Symbols
from tandem.ops.define import Composite, add_input, op
from tests.check import check_gradients


class Twice(Composite):
    name = "twice"

    def infer(self, x):
        return x

    def expand(self, x):
        return F.Add()(x, x)

    def grad(self, g, x):
        return Twice()(g)


class FourTimes(Composite):
    """Holds another composite, and gives its input back as a second output."""

    name = "four_times"
    sparse_grads = True

    def infer(self, x):
        return x, x

    def expand(self, x):
        return Twice()(Twice()(x)), x

    def grad(self, g, x):
        assert g[1] is None
        return Twice()(Twice()(g[0]))


def test_nested_composites_disappear():
    graph = Graph(Symbols())
    with Builder(graph) as builder:
        x = add_input(builder, Type(td.float32, (3,)))
        y, same = FourTimes()(x)
        z = F.Neg()(y)
    graph.outputs, graph.mutations = [z, same], [(0, y)]
    result, made = expand(graph)
    assert [node.op.name for node in result.nodes] == ["input", "add", "add", "neg"]
    assert result.outputs == [made[z], result.inputs[0]] and made[same] is result.inputs[0]
    assert result.mutations == [(0, made[y])]


def test_graphs_without_composites_stay():
    graph = Graph(Symbols())
    with Builder(graph) as builder:
        F.Neg()(add_input(builder, Type(td.float32, (3,))))
    assert expand(graph) == (graph, {})


def test_composites_in_operators():
    @op(hidden=True)
    def scaled(x: "Tensor"):  # noqa: F821
        return FourTimes()(F.exp(x))[0] * x

    array = np.linspace(-1, 1, 5)
    np.testing.assert_allclose(scaled(td.tensor(array)).numpy(), 4 * np.exp(array) * array)
    check_gradients(scaled, (array,))
