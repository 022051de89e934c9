import tandem.ops as F
from tandem.passes.common_subexpressions import common_subexpressions
from tandem.passes.eliminate_dead import eliminate_dead
from tests.passes.check import trace

M = ["f32[3,4]"]


def test_what_nobody_needs_goes_but_effects_stay():
    class Announce(F.Copy):
        name = "announce"
        effect = True

    def program(x):
        F.Exp()(x)
        Announce()(x), Announce()(x)
        return F.Neg()(x)

    graph = trace(program, M)
    assert [n.op.name for n in eliminate_dead(graph).nodes] == ["input", "announce", "announce", "neg"]
    assert [n.op.name for n in common_subexpressions(graph).nodes].count("announce") == 2


def test_what_only_dead_nodes_read_goes_with_them():
    graph = trace(lambda x: (F.Exp()(F.Neg()(x)), F.Abs()(x))[1], M)
    assert [n.op.name for n in eliminate_dead(graph).nodes] == ["input", "abs"]


def test_a_graph_that_needs_everything_is_the_same_object():
    graph = trace(lambda x: F.Exp()(x), M)
    assert eliminate_dead(graph) is graph
