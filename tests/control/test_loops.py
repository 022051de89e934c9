"""Loops: eager = compiled, values and derivatives, errors."""

import numpy as np
import pytest

import tandem as td
from tests.control.agree import check
from tests.control.checks import both

D = td.float64


def rand(*shape):
    return td.tensor(np.random.default_rng(sum(shape) + len(shape)).standard_normal(shape), dtype=D)


# -- scan


def test_scan_of_a_recurrent_cell():
    def f(h, xs, w, b):
        return td.scan(lambda h, x: (td.tanh(h @ w + x + b),) * 2, h, xs)

    check(f, rand(3, 4), rand(5, 3, 4), rand(4, 4), rand(4))


def test_scan_backwards():
    check(lambda h, xs: td.scan(lambda c, x: (c * x, c + x), h, xs, reverse=True), rand(3), rand(4, 3))


def test_scan_without_xs():
    check(lambda h: td.scan(lambda c, x: (td.sin(c) + c, c * c), h, length=3), rand(3))


@pytest.mark.parametrize("length", [0, 1, 2])
def test_short_scans(length):
    check(lambda h, xs: td.scan(lambda c, x: (c * x.sum(), x * c), h, xs), rand(3), rand(length, 3))


def test_a_carry_that_is_passed_through_or_swapped():
    check(lambda a, b: td.scan(lambda c, _: ((c[1], c[0]), c[0]), (a, b), length=5), rand(3), rand(3))
    check(lambda a, b: td.scan(lambda c, _: ((c[0], c[1] * c[0]), None), (a, b), length=3)[0], rand(3), rand(3))


def test_closures_over_values_of_the_function_around():
    def f(x, w):
        y = td.exp(x @ w)
        return td.scan(lambda c, row: (c * y + row, (c * row).sum()), x, td.stack([y, x, y]))

    check(f, rand(2, 3) * 0.3, rand(3, 3) * 0.3)


def test_two_directions_of_a_matrix_product():
    def f(h, xs, w):
        return td.scan(lambda c, x: (td.tanh(c @ w + x @ w.T), c.sum(0)), h, xs)

    check(f, rand(2, 3), rand(4, 2, 3), rand(3, 3))


# Small integers: every order of summation gives the same float32, so a weight packed for all iterations must too.
@pytest.mark.parametrize("rows", [16, 20, 26, 33, 144, 145, 290])
@pytest.mark.parametrize("inner, columns, transposed", [(96, 80, False), (900, 75, False), (90, 130, True)])
def test_a_weight_that_stays_the_same_is_packed_once(rows, inner, columns, transposed):
    rng = np.random.default_rng(0)

    def whole(*shape):
        return rng.integers(-3, 4, shape).astype(np.float32)

    xs = whole(3, rows, inner)
    f = td.compile(lambda c, xs, w, b: td.scan(lambda c, x: (td.nn.functional.relu(x @ w + b) - c, (x @ w)[0]), c, xs))
    for start, w, b in [(whole(rows, columns), whole(inner, columns), whole(columns)) for _ in range(2)]:
        weight = td.asarray(np.ascontiguousarray(w.T)).T if transposed else td.asarray(w)
        carry, out = f(td.asarray(start), td.asarray(xs), weight, td.asarray(b))
        expected = start
        for x in xs:
            expected = np.maximum(x @ w + b, 0) - expected
        np.testing.assert_array_equal(carry.numpy(), expected)
        np.testing.assert_array_equal(out.numpy(), (xs @ w)[:, 0])


def test_weights_that_change_in_a_loop_are_not_taken_for_the_first():
    rng = np.random.default_rng(0)
    x, w = rng.integers(-3, 4, (20, 64)).astype(np.float32), rng.integers(-3, 4, (64, 64)).astype(np.float32)
    many = rng.integers(-3, 4, (4, 64, 64)).astype(np.float32)

    @td.compile
    def f(x, w, many):
        carried = td.scan(lambda c, _: (c + 1, x @ c), w, td.arange(4))[1]
        scanned = td.scan(lambda c, m: (c, x @ m), td.zeros(1), many)[1]
        until = td.while_loop(
            lambda c, i: i < 3, lambda c, i: (c + (x @ w)[:, :1] + (x @ (w + c[0]))[:, 1:2], i + 1), (x, 0)
        )[0]
        return carried, scanned, until

    carried, scanned, until = f(td.asarray(x), td.asarray(w), td.asarray(many))
    np.testing.assert_array_equal(carried.numpy(), [x @ (w + i) for i in range(4)])
    np.testing.assert_array_equal(scanned.numpy(), x @ many)
    c = x
    for _ in range(3):
        c = c + (x @ w)[:, :1] + (x @ (w + c[0]))[:, 1:2]
    np.testing.assert_array_equal(until.numpy(), c)


def test_the_way_back_computes_little_again():
    def f(c, xs, w):
        return td.scan(lambda c, x: (td.tanh(c @ w + x), c.sum(0)), c, xs)[0].sum()

    check(td.grad(f, argnums=(0, 1, 2)), rand(3, 4), rand(5, 3, 4), rand(4, 4))
    g = td.compile(td.grad(f, argnums=(0, 1, 2)))
    g(rand(3, 4), rand(5, 3, 4), rand(4, 4))
    there, back = [node.op.body for node in g.graph().nodes if node.op.name == "scan"]
    assert "tanh" in [node.op.name for node in there.nodes]
    assert "tanh" not in [node.op.name for node in back.nodes]


def test_the_way_back_finds_the_gates():
    def f(c, xs, w):
        def cell(c, x):
            forget, add = (c @ w + x).split(3, 1)
            c = td.sigmoid(forget) * c + td.tanh(add)
            return c, c.sum()

        return td.scan(cell, c, xs)[0].sum()

    check(td.grad(f, argnums=(0, 1, 2)), rand(2, 3), rand(5, 2, 6), rand(3, 6))
    g = td.compile(td.grad(f, argnums=(0, 1, 2)))
    g(rand(2, 3), rand(5, 2, 6), rand(3, 6))
    _, back = [node.op.body for node in g.graph().nodes if node.op.name == "scan"]
    assert {"sigmoid", "tanh", "slice"}.isdisjoint(node.op.name for node in back.nodes)


def test_sizes_need_no_new_body():
    f = td.compile(lambda h, xs: td.scan(lambda c, x: (c + x, c.sum()), h, xs), whole=True)
    for steps, width in ((3, 2), (5, 2), (7, 4), (9, 6)):
        last, sums = f(rand(width), rand(steps, width))
        assert last.shape == (width,)
        assert sums.shape == (steps,)
    assert f._programs.num_programs <= 2


def test_a_parameter_trains_through_scan():
    w = td.tensor([[0.5, -0.2], [0.1, 0.3]], dtype=D, requires_grad=True)
    xs = rand(6, 3, 2)

    def step():
        h, _ = td.scan(lambda h, x: (td.tanh(h @ w + x), None), td.zeros(3, 2, dtype=D), xs)
        loss = (h * h).mean()
        loss.backward()
        with td.no_grad():
            w.sub_(0.1 * w.grad)
        w.grad = None
        return loss

    start = w.detach().clone()
    eager = [float(step()) for _ in range(5)]
    with td.no_grad():
        w.copy_(start)
    compiled = td.compile(step, whole=True)
    np.testing.assert_allclose([float(compiled()) for _ in range(5)], eager, rtol=1e-12)


# -- fori_loop and map


def test_fori_loop():
    f = td.compile(lambda x, n: td.fori_loop(0, n, lambda i, v: v * 2 + i, x), whole=True)
    for n in (0, 1, 4, 6):
        assert float(f(td.tensor(1.0), n)) == float(td.fori_loop(0, n, lambda i, v: v * 2 + i, td.tensor(1.0)))
    assert f._programs.num_traces == 1
    check(lambda x: td.fori_loop(2, 5, lambda i, v: td.sin(v) * i, x), rand(3))


def test_fori_loop_with_bounds_that_are_tensors():
    f = lambda x, n: td.fori_loop(td.tensor(1), n, lambda i, v: v + i * v, x)
    assert (
        float(td.compile(f, whole=True)(td.tensor(1.0), td.tensor(4))) == float(f(td.tensor(1.0), td.tensor(4))) == 24
    )


def test_map():
    check(lambda xs, w: td.map(lambda x: td.tanh(x @ w), xs), rand(4, 2, 3), rand(3, 3))
    check(lambda xs, ys: td.map(lambda p: p[0] * p[1].sum(), (xs, ys)), rand(4, 3), rand(4, 2))


# -- while_loop


def test_while_with_a_count_that_depends_on_values():
    def f(x, k):
        return td.while_loop(lambda v: v.sum() < 100, lambda v: v * v * k + 1, x)

    check(f, td.tensor([1.0, 1.5], dtype=D), td.tensor(1.2, dtype=D))
    check(f, td.tensor([100.0, 1.5], dtype=D), td.tensor(1.2, dtype=D))  # no iteration
    check(f, td.tensor([9.0, 1.5], dtype=D), td.tensor(1.2, dtype=D))  # one


def test_while_variables_are_passed_one_by_one_or_together():
    one = td.compile(lambda x: td.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2), (td.tensor(0), x)))
    both = td.compile(lambda x: td.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (td.tensor(0), x)))
    assert [int(one(td.tensor(1))[1]), int(both(td.tensor(1))[1])] == [8, 8]


def test_while_stops_at_its_maximum():
    f = lambda x, n: td.while_loop(lambda v: v < 1e9, lambda v: v + 1, x, maximum=n)
    assert float(f(td.tensor(0.0), 7)) == float(td.compile(f)(td.tensor(0.0), 7)) == 7


def test_a_loop_of_single_elements_is_one_kernel():
    def f(x, table, n):
        def body(i, v, up):
            return i + 1, td.where(up, v + table[i % 3], v * 0.5), ~up

        return td.while_loop(lambda i, v, up: (i < n) & (v < 50), body, (td.tensor(0), x, td.tensor(True)))

    table = td.tensor([1.0, 2.5, 4.0], dtype=D)
    compiled = td.compile(f, whole=True)
    for x, n in ((0.5, 9), (49.0, 100), (60.0, 3), (0.0, 0)):
        expected = f(td.tensor(x, dtype=D), table, td.tensor(n))
        for a, b in zip(expected, compiled(td.tensor(x, dtype=D), table, td.tensor(n)), strict=True):
            assert a.item() == b.item()
    check(
        lambda x, k: td.while_loop(lambda v: v < 20, lambda v: v * v * k + 1, x),
        td.tensor(1.0, dtype=D),
        td.tensor(0.9, dtype=D),
    )


def test_ten_million_iterations_in_one_kernel():  # more than one call of it makes
    f = td.compile(
        lambda n: td.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + 2), (td.tensor(0), td.tensor(0)))
    )
    assert [int(v) for v in f(td.tensor(10_000_000))] == [10_000_000, 20_000_000]
    g = td.compile(
        lambda n: td.while_loop(lambda i: i < 100_000_000, lambda i: i + 1, td.tensor(0), maximum=n), whole=True
    )
    assert int(g(5_000_000)) == 5_000_000


def test_newton_with_a_data_dependent_stop_is_differentiated():
    def root(a):
        def body(x, _):
            new = x - (x * x * x - a) / (3 * x * x)
            return new, (new - x).abs().max()

        return td.while_loop(lambda x, error: error > 1e-12, body, (td.ones_like(a), td.tensor(1.0, dtype=D)))[0]

    a = td.tensor([2.0, 5.0], dtype=D)
    check(root, a, tolerance=1e-7)
    x = a.clone().requires_grad_()
    td.compile(root, whole=True)(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), a.numpy() ** (-2 / 3) / 3, rtol=1e-9)


# -- nested


def test_a_while_in_a_scan_in_a_cond():
    def inner(c, x):
        grown = td.while_loop(lambda v: (v * v).sum() < 4, lambda v: v * 1.5 + x, c, maximum=6)
        return grown * 0.1 + x, grown.sum()

    def f(h, xs):
        return td.cond(
            h.sum() > 0, lambda: td.scan(inner, h, xs), lambda: td.scan(lambda c, x: (c - x, c.sum()), h, xs)
        )

    xs = rand(3, 2)
    check(f, td.tensor([0.5, 0.2], dtype=D), xs)
    check(f, td.tensor([-0.5, 0.2], dtype=D), xs)


def test_a_scan_in_a_scan_with_a_shared_weight():
    def f(h, xs, w):
        def outer(c, x):
            inner, ys = td.scan(lambda d, _: (td.tanh(d @ w + x), d.sum()), c, length=2)
            return inner + c, ys.sum()

        return td.scan(outer, h, xs)

    check(f, rand(2, 3), rand(3, 2, 3), rand(3, 3))


def test_a_gradient_of_a_loop_inside_a_loop():
    def energy(x, w):
        return td.scan(lambda c, _: (td.sin(c * w), None), x, length=3)[0].sum()

    def descend(x, w):
        return td.fori_loop(0, 3, lambda i, v: v - 0.1 * td.grad(energy)(v, w), x)

    np.testing.assert_allclose(
        td.compile(descend, whole=True)(rand(3), rand(3)).numpy(), descend(rand(3), rand(3)).numpy(), rtol=1e-12
    )
    check(descend, rand(3), rand(3))


# -- gradients that must not flow


def test_detach_and_no_grad_inside_a_body():
    def f(x, w):
        def step(c, _):
            with td.no_grad():
                frozen = c * w
            return c.detach() * w + c + frozen, None

        return td.scan(step, x, length=3)[0]

    from tests.control.agree import derivatives

    expected = derivatives(f, (rand(3), rand(3)))
    for a, b in zip(expected, derivatives(td.compile(f, whole=True), (rand(3), rand(3))), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-10)


def test_a_detached_alias_from_outside_is_another_tensor():
    def f(x):
        fixed = x.detach()
        return td.scan(lambda c, _: (c * fixed + x, None), x, length=2)[0]

    from tests.control.agree import derivatives

    for a, b in zip(derivatives(f, (rand(3),)), derivatives(td.compile(f), (rand(3),)), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-10)


# -- random numbers


def test_random_numbers_inside_loops_are_those_of_eager_code():
    def f(x):
        def step(c, _):
            c = td.nn.functional.dropout(c + td.rand(3), 0.5)
            return c, td.scan(lambda d, _: (d + td.randn(3), None), c, length=2)[0]

        return td.scan(step, x, length=3)

    td.manual_seed(3)
    expected, after = f(td.ones(3)), td.rand(2)
    td.manual_seed(3)
    made, then = td.compile(f, whole=True)(td.ones(3)), td.rand(2)
    for a, b in zip([*expected, after], [*made, then], strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-6)


def test_random_numbers_of_a_while_loop_are_those_of_eager_code():
    f = lambda x: td.while_loop(lambda v: v.sum() + td.rand(()) < 9, lambda v: v + td.rand(3), x)
    td.manual_seed(5)
    expected = f(td.zeros(3))
    td.manual_seed(5)
    np.testing.assert_allclose(td.compile(f, whole=True)(td.zeros(3)).numpy(), expected.numpy(), rtol=1e-6)


def test_lengths_must_agree():
    for text in both(lambda a, b: td.scan(lambda c, x: (c, x), td.tensor(0.0), (a, b)), td.ones(2), td.ones(3)):
        assert "xs[1] has length 3, but 2 steps are to be made" in text


def grow(x, n=8):
    """Doubles x until its sum is large: how long it gets depends on values."""
    return td.while_loop(
        lambda v, k: v.sum() < n, lambda v, k: (td.concat([v, v * 2]), k + 1), (x, td.tensor(0)), vary=True
    )


@pytest.mark.parametrize("start", [[1.0], [0.5, 0.25], [9.0]])
def test_shapes_may_vary(start):
    x = td.tensor(start, requires_grad=True)
    made, count = grow(x)
    (gradient,) = td.autograd.grad((made * made).sum(), [x])
    assert made.shape[0] == len(start) * 2 ** count.item()
    f = td.compile(lambda x: (lambda y, k: (y * 1, k, td.autograd.grad((y * y).sum(), [x])[0]))(*grow(x * 1.0)))
    for _ in range(2):
        again, times, back = f(td.tensor(start, requires_grad=True))
        assert again.tolist() == made.tolist() and times.item() == count.item() and back.tolist() == gradient.tolist()
    graph = td.Graph()
    with graph:
        fed = td.placeholder(td.float32, (len(start),))
        result, steps = grow(fed)
        one = grow(fed, 1e9)[1]
        most = td.while_loop(lambda v: v.sum() < 1e9, lambda v: td.concat([v, v]), fed, maximum=3, vary=True)
        assert result.get_shape() == (None,) or list(result.get_shape()) == [None]
    with td.Session(graph) as session:
        found, times = session.run((result, steps), {fed: start})
        assert found.tolist() == made.tolist() and times.item() == count.item()
        assert session.run(one, {fed: start}).item() > count.item()
        assert session.run(most, {fed: start}).shape == (8 * len(start),)


def test_shapes_cannot_vary_inside_of_regions():
    nested = td.compile(lambda x: td.scan(lambda c, _: (c + grow(x)[0].sum(), None), td.tensor(0.0), length=2)[0])
    with pytest.raises(td.UnsupportedError, match="inside another loop"):
        nested(td.ones(1))
    with td.Graph():
        x = td.placeholder(td.float32, (1,))
        with pytest.raises(td.DTypeError, match="the Python value False"):
            td.while_loop(lambda v: v.shape[0] < 8, lambda v: td.concat([v, v]), x, vary=True)
        with pytest.raises(td.DTypeError, match="number of axes"):
            td.while_loop(lambda v: v.sum() < 8, lambda v: v[None], x, vary=True)
        with pytest.raises(td.UnsupportedError, match="inside another loop"):
            td.scan(lambda c, _: (c + grow(x)[0].sum(), None), td.tensor(0.0), length=2)


def test_an_index_out_of_range_inside_a_loop_names_the_line():
    def f(x, i):
        return td.scan(lambda c, k: (c + x[k], None), td.tensor(0.0), i)[0]

    with pytest.raises(td.IndexRangeError, match=r"test_loops\.py"):
        td.compile(f)(td.ones(3), td.tensor([0, 5]))


def test_a_loop_that_does_not_run_divides_by_nothing():
    """The check of a divisor is no part that may run before its loop."""

    def fn(n, x, y):
        return td.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + x // y), (td.tensor(0), td.zeros_like(x)))[1]

    x, y = td.tensor([4, 5]), td.tensor([0, 2])
    assert [0, 0] == fn(td.tensor(0), x, y).tolist() == td.compile(fn)(td.tensor(0), x, y).tolist()
    with pytest.raises(td.DivisionError):
        td.compile(fn)(td.tensor(1), x, y)
