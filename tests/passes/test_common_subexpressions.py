import tandem.ops as F
from tandem.passes.common_subexpressions import common_subexpressions
from tandem.passes.eliminate_dead import eliminate_dead
from tandem.passes.simplify import simplify
from tests.passes.check import trace

M = ["f32[3,4]"]


def test_what_is_computed_twice_is_computed_once():
    graph = trace(lambda x, y: (F.Exp()(F.Add()(x, y)), F.Exp()(F.Add()(y, x))), M * 2)
    result = common_subexpressions(graph)
    assert result.outputs[0] is result.outputs[1]
    assert [n.op.name for n in eliminate_dead(result).nodes] == ["input", "input", "add", "exp"]


def test_sums_of_the_same_elements_in_another_shape_are_one():
    def sums(x):
        flat = F.Reshape((6, 4))(x)
        return F.Reshape((4,))(F.Reduce("sum", (0, 1))(x)), F.Reshape((4,))(F.Reduce("sum", (0,))(flat))

    result = simplify(common_subexpressions(trace(sums, ["f32[2,3,4]"])))
    assert result.outputs[0] is result.outputs[1]

    def others(x):
        flat, mixed = F.Reshape((6, 4))(x), F.Reshape((8, 3))(x)
        return (F.Reduce("sum", (0, 1))(x), F.Reduce("sum", (0,))(mixed), F.Reduce("max", (0,))(flat),
                F.Reduce("argmax", (0, 1))(x), F.Reduce("argmax", (0,))(flat), F.Reduce("sum", (1,))(flat))  # fmt: skip

    graph = trace(others, ["f32[2,3,4]"])
    assert common_subexpressions(graph) is graph
