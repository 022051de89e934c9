import numpy as np

import tandem as td
import tandem.ops as F
from tandem.passes.reassociate_matmul import cheapest_order, reassociate_matmul
from tests.passes.check import check_pass, trace

mm = lambda a, b: F.Matmul()(a, b)


def test_a_chain_is_done_in_the_cheapest_order():
    chain = ["f32[200,300]", "f32[300,400]", "f32[400,1]"]
    check_pass(reassociate_matmul, lambda a, b, c: mm(mm(a, b), c), lambda a, b, c: mm(a, mm(b, c)), chain)
    back = ["f32[1,200]", "f32[200,300]", "f32[300,400]", "f32[400,500]"]
    check_pass(
        reassociate_matmul, lambda a, b, c, d: mm(a, mm(b, mm(c, d))), lambda a, b, c, d: mm(mm(mm(a, b), c), d), back
    )


def test_an_order_that_is_good_stays():
    good = lambda a, b, c: mm(a, mm(b, c))
    check_pass(reassociate_matmul, good, good, ["f32[200,300]", "f32[300,400]", "f32[400,1]"])
    small = lambda a, b, c: mm(mm(a, b), c)
    check_pass(reassociate_matmul, small, small, ["f32[4,4]", "f32[4,4]", "f32[4,1]"])


def test_a_product_that_others_need_stays():
    def shared(a, b, c):
        ab = mm(a, b)
        return mm(ab, c), F.Exp()(ab)

    check_pass(reassociate_matmul, shared, shared, ["f32[200,300]", "f32[300,400]", "f32[400,1]"])


def test_sizes_may_be_symbolic():
    graph = trace(lambda a, b, c: mm(mm(a, b), c), ["f32[200,300]", "f32[300,400]", "f32[400,1]"], symbolic=True)
    guards = len(graph.symbols.guards)
    result = reassociate_matmul(graph)
    assert result.outputs[0].node.inputs[0] is result.inputs[0]
    assert len(graph.symbols.guards) == guards


def test_textbook_chain():
    sizes = [30, 35, 15, 5, 10, 20, 25]
    cost, split = cheapest_order(sizes)
    assert cost - 5 * 2e4 == 15125  # Cormen et al., 15.2
    assert split[0, 5] == 2


def test_results_of_a_chain_agree():
    rng = np.random.default_rng(0)
    a, b, c = (td.tensor(rng.normal(size=s).astype(np.float32)) for s in ((60, 70), (70, 80), (80, 1)))
    f = td.compile(lambda: (a @ b) @ c)
    np.testing.assert_allclose(f().numpy(), ((a @ b) @ c).numpy(), rtol=1e-3, atol=1e-3)
    assert [n.inputs[0].shape for n in f.graph().nodes if n.op.name == "matmul"] == [(70, 80), (60, 70)]


def test_transposes_before_a_product_cost_nothing():
    """The library takes strides: a permuted operand is a view, never a copy."""
    a, b = td.randn(8, 16), td.randn(12, 8)
    f = td.compile(lambda: a.mT @ b.mT)
    f()
    assert [getattr(s, "routine", "kernel") for s in f.graph().schedule.steps] == ["matmul"]
