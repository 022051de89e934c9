import tandem.ops as F
from tandem.ops.again import Again
from tandem.ops.collective import AllGather, AllReduce, ReduceScatter
from tandem.passes.prefetch_gathers import prefetch_gathers
from tests.passes.check import check_pass, trace

whole = lambda p, tag, beside=True: AllGather(0, 2, (), tag, beside)(p)
part = lambda g, tag: ReduceScatter(0, 2, "sum", g.shape[0] // 2, (), tag, True)(g)
mm = lambda a, b: F.Matmul()(a, b)
INPUTS = ["f32[3,4]", *["f32[2,4]"] * 3]


def names(graph):
    """Operators in order; collectives with their tags."""
    return [n.op.name + str(getattr(n.op, "tag", "")) for n in graph.nodes if not n.op.is_input]


def forward(x, *parts):
    for tag, p in enumerate(parts, 1):
        x = F.Exp()(mm(x, whole(p, tag)))
    return x


def test_a_layer_is_gathered_before_the_one_in_front_of_it_is_computed():
    made = names(prefetch_gathers(trace(forward, INPUTS)))
    assert made == [
        "all_gather1", "all_gather2", "matmul", "exp", "all_gather3", "matmul", "exp", "matmul", "exp",
    ]  # fmt: skip
    check_pass(prefetch_gathers, forward, forward, INPUTS)  # but for the order


def test_what_a_layer_gathers_is_gathered_together():
    def layers(x, a, b, c, d):
        for i, (w, v) in enumerate(((a, b), (c, d))):
            w, v = whole(w, 2 * i + 1), whole(v, 2 * i + 2)
            x = mm(mm(x, w), v)
        return x

    made = names(prefetch_gathers(trace(layers, [INPUTS[0], *["f32[2,4]"] * 4])))
    assert made == [*(f"all_gather{i}" for i in (1, 2, 3, 4)), *["matmul"] * 4]


def test_in_backward_a_layer_passes_the_reduce_scatter_of_the_one_behind_it():
    def backward(g, p, q):
        b = whole(Again()(q), 2)
        gb = part(mm(b, g), 2)
        g = mm(g, b)
        a = whole(F.Mul()(Again()(p), Again()(p)), 1)
        return gb, part(mm(a, g), 1), mm(g, a)

    inputs = ["f32[4,4]", "f32[2,4]", "f32[2,4]"]
    made = names(prefetch_gathers(trace(backward, inputs)))
    first = made.index("matmul")
    assert {"all_gather1", "all_gather2"} < set(made[:first]) and "reduce_scatter2" in made[first:]
    assert made.index("all_gather2") < made.index("all_gather1")
    check_pass(prefetch_gathers, backward, backward, inputs)


def test_the_last_layer_of_forward_is_gathered_again_behind_its_last_use():
    def turn(x, p):
        y = F.Exp()(mm(x, whole(p, 1)))
        return mm(y, whole(Again()(p), 1))

    graph = trace(turn, INPUTS[:2])
    nodes = list(prefetch_gathers(graph).nodes)
    made = [n.op.name for n in nodes if not n.op.is_input and not isinstance(n.op, Again)]
    assert made == ["all_gather", "matmul", "all_gather", "exp", "matmul"]


def test_other_effects_are_not_passed():
    def step(x, p, q):
        x = mm(x, whole(p, 1))
        (total,) = (AllReduce(0, 2, "sum", 0, True)(x),)
        return mm(total, whole(q, 2))

    made = names(prefetch_gathers(trace(step, INPUTS[:3])))
    assert made.index("all_reduce0") < made.index("all_gather2")


def test_gathers_that_are_no_parameters_or_run_on_these_processors_stay():
    def users(x, p, q):
        return mm(mm(x, whole(p, 0)), whole(q, 0))

    def one_host(x, p, q):
        return mm(mm(x, whole(p, 1, False)), whole(q, 2, False))

    for step in (users, one_host):
        graph = trace(step, INPUTS[:3])
        assert prefetch_gathers(graph) is graph


def test_parameters_that_are_computed_at_some_cost_stay():
    def step(x, p, q):
        x = mm(x, whole(p, 1))
        return mm(x, whole(mm(q, q), 2))

    graph = trace(step, ["f32[3,4]", "f32[2,4]", "f32[4,4]"])
    made = names(prefetch_gathers(graph))
    assert made == names(graph)
