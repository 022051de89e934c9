"""simplify_regions: what moves out of loops."""

import numpy as np

import tandem as td


def body_of(fn, *args, name="scan"):
    """The graph of the compiled function, and its region's body."""
    compiled = td.compile(fn, whole=True)
    made, expected = compiled(*args), fn(*args)
    made = made if isinstance(made, (tuple, list)) else [made]
    expected = expected if isinstance(expected, (tuple, list)) else [expected]
    for a, b in zip(expected, made, strict=True):
        np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=2e-5, atol=1e-6)
    graph = compiled.graph()
    regions = [n for n in graph.nodes if n.op.name == name]
    return graph, regions[0] if regions else None


def names(graph):
    return [n.op.name for n in graph.nodes]


def test_products_of_rows_are_made_before_the_loop():
    w, u, b = td.randn(3, 4), td.randn(4, 4), td.randn(4)
    step = lambda h, x: (td.tanh(td.nn.functional.linear(x, w.T, b) + h @ u), None)
    graph, scan = body_of(lambda xs: td.scan(step, td.zeros(2, 4), xs)[0], td.randn(5, 2, 3))
    assert names(scan.op.body).count("matmul") == 1
    assert names(graph).count("matmul") == 1


def test_products_that_only_go_into_rows_are_made_after_the_loop():
    w = td.randn(4, 6)
    graph, scan = body_of(
        lambda xs: td.scan(lambda h, x: (td.sin(h + x), h @ w), td.zeros(2, 4), xs)[1], td.randn(5, 2, 4)
    )
    assert "matmul" not in names(scan.op.body)
    assert names(graph).count("matmul") == 1


def test_what_does_not_change_is_computed_once():
    w = td.randn(4, 4)
    graph, scan = body_of(lambda x: td.scan(lambda h, _: (h @ td.exp(w) * 0.1, None), x, length=3)[0], td.randn(2, 4))
    assert "exp" in names(graph)
    assert "exp" not in names(scan.op.body)


def test_a_condition_and_a_body_of_a_while_loop_share_what_is_computed_once():
    w = td.randn(4).abs()
    f = lambda x: td.while_loop(lambda v: v.sum() < td.log(w).abs().sum() + 9, lambda v: v + td.log(w).abs() + 1, x)
    graph, loop = body_of(f, td.zeros(4), name="while")
    assert names(graph).count("log") == 1
    assert not any("log" in names(g) for g in loop.op.graphs())


def test_unused_results_and_operands_go_away():
    def f(xs, zs):
        (_h, n), (_a, b) = td.scan(lambda c, x: ((c[0] + x[1].sum(), c[1] * 1.0), (c[0] * x[1], x[0] * c[1])),
                                   (td.tensor(1.0), td.tensor(2.0)), (xs, zs))  # fmt: skip
        return b, n

    _graph, scan = body_of(f, td.randn(5, 2), td.randn(5, 3))
    assert (scan.op.carried, scan.op.scanned) == (0, 1) or len(scan.op.body.outputs) <= 2
    assert all(v.shape != (5, 3) for v in scan.inputs)


def test_what_gradients_would_need_is_not_kept_where_there_are_none():
    w = td.randn(4, 4, requires_grad=True)
    f = lambda x: td.scan(lambda h, _: (td.tanh(h @ w), None), x, length=3)[0].detach()
    _graph, scan = body_of(f, td.randn(2, 4))
    assert len(scan.outputs) == 1


def test_the_gradient_of_a_weight_is_one_product():
    w = td.randn(4, 4, requires_grad=True)
    for weight in (lambda: w, lambda: w.T):
        _check_one_product(weight, w)


def _check_one_product(weight, w):
    def f(xs):
        h, _ = td.scan(lambda h, x: (td.tanh(h @ weight() + x), None), td.zeros(2, 4), xs)
        return td.autograd.grad((h * h).sum(), [w])[0]

    graph, _ = body_of(f, td.randn(5, 2, 4))
    forward, back = [n for n in graph.nodes if n.op.name == "scan"]
    assert names(forward.op.body).count("matmul") == names(back.op.body).count("matmul") == 1
    assert names(graph).count("matmul") == 1
    assert all(v.shape != (4, 4) for v in back.outputs)
