import tandem.ops as F
from tandem.passes.expand_composites import expand_composites
from tests.passes.check import check_pass, trace


def test_a_composite_becomes_what_it_is_made_of():
    graph = trace(lambda x: F.Softmax((1,))(x), ["f32[3,4]"])
    names = [n.op.name for n in expand_composites(graph).nodes]
    assert "softmax" not in names and "exp" in names and names.count("reduce") == 2


def test_composites_inside_of_composites_are_expanded_too():
    graph = trace(lambda x: F.exp(F.LogSumExp((1,))(F.Softmax((1,))(x))), ["f32[3,4]"])
    assert not {"softmax", "logsumexp"} & {n.op.name for n in expand_composites(graph).nodes}


def test_primitives_stay():
    program = lambda x: F.Reduce("sum", (1,))(F.Exp()(x))
    check_pass(expand_composites, program, program, ["f32[3,4]"])


def test_layers_of_equal_shapes_are_asked_once(monkeypatch):
    asked = []
    expand = F.Softmax.expand
    monkeypatch.setattr(F.Softmax, "expand", lambda self, x: asked.append(self) or expand(self, x))

    def before(x, y):
        return [F.Softmax(1)(v) for v in (x, F.Neg()(x), y, F.Neg()(y))]

    def expected(x, y):
        return [expand(F.Softmax(1), v) for v in (x, F.Neg()(x), y, F.Neg()(y))]

    check_pass(expand_composites, before, expected, ["f32[4,3]", "f32[2,3]"])
    assert len(asked) == 2
