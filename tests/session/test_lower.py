"""Structured regions lowered to primitives give what native loops give, values and gradients, to second order."""

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tandem import _runtime
from tandem.autodiff.reverse import backpropagate
from tandem.control.regions import make_cond, make_scan, make_while
from tandem.graph.ir import Type, current_builder
from tandem.graph.symbolic import Symbols
from tandem.ops.define import ParameterSpec, make_function
from tandem.ops.region import Region, region_graph
from tandem.session.lower import Lowered

PARAMETERS = [ParameterSpec("tensors", "tensors", True, None, False)]


class Body:
    """What a region computes: fn(inputs, constants) -> results."""

    random = False

    def __init__(self, fn):
        self.fn = fn

    def trace(self, inputs, consts, draws):
        return self.fn(inputs, consts)


def cond(p, yes, no, *args):
    return make_cond([Body(lambda a, c: no(*a)), Body(lambda a, c: yes(*a))], p, list(args), [], None)


def cases(i, branches, *args):
    return make_cond([Body(lambda a, c, f=f: f(*a)) for f in branches], i, list(args), [], None)


def while_loop(test, body, init, consts=(), most=None):
    return make_while(
        Body(lambda a, c: [test(a[:-1], c)]), Body(lambda a, c: body(a[:-1], c)), list(init), list(consts), most, None
    )


def scan(f, init, xs, consts=(), reverse=False):
    n = len(init)

    def body(a, c):
        carry, ys = f(a[:n], a[n:-1], c)
        return [*carry, *ys]

    return make_scan(Body(body), list(init), list(xs), list(consts), xs[0].shape[0], reverse, None)


def with_gradients(fn, order):
    """fn's results, and gradients of their sum with respect to its floating inputs, up to this order."""

    def traced(*values):
        results = list(fn(*values))
        made = list(results)
        wanted = [v for v in values if v.dtype.is_inexact]
        for _ in range(order):
            ys = [r for r in results if r.dtype.is_inexact]
            weighted = [F.cos(y) for y in ys]
            grads = backpropagate(list(current_builder().graph.nodes), ys, weighted, wanted)
            results = [g for g in grads if g is not None]
            made += results
        return [F.Copy()(v) for v in made]

    return traced


def agree(fn, *arrays, order=2, tolerance=1e-9, unknown=()):
    tensors = [td.tensor(a) for a in arrays]
    traced = with_gradients(fn, order)
    native = make_function("native", lambda tensors: tuple(traced(*tensors)), PARAMETERS)(tensors)
    symbols = Symbols()
    types = [
        Type(t.dtype, tuple(symbols.new(n, ("size", k, i)) if (k, i) in unknown else n for i, n in enumerate(t.shape)))
        for k, t in enumerate(tensors)
    ]
    _runtime.enter_trace()
    try:
        graph = region_graph(symbols, "main", types, traced)
    finally:
        _runtime.exit_trace()
    assert any(isinstance(n.op, Region) for n in graph.nodes)
    lowered = Lowered(graph)
    for threads in (1, 2):
        for a, b in zip(native, lowered(tensors, threads=threads), strict=True):
            np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=tolerance, atol=tolerance)
    return native, lowered


RNG = np.random.default_rng(0)


@pytest.mark.parametrize("taken", [False, True])
def test_cond(taken):
    def fn(p, x, y):
        return cond(p, lambda x, y: [td.sin(x) * y], lambda x, y: [x + y * y], x, y)

    _, lowered = agree(fn, np.array(taken), RNG.standard_normal(3), RNG.standard_normal(3))
    assert lowered.last_outcome.skipped > 0


@pytest.mark.parametrize("chosen", [0, 1, 2])
def test_several_branches(chosen):
    def fn(i, x):
        return cases(i, [lambda x: [x * 2], lambda x: [td.exp(x)], lambda x: [td.ones(4, dtype=td.float64)]], x)

    agree(fn, np.array(chosen), RNG.standard_normal(4))


@pytest.mark.parametrize("start", [0.5, 1.5, 300.0])
def test_while(start):
    def fn(x, w):
        return while_loop(lambda a, c: td.sum(a[0]) < 100, lambda a, c: [a[0] * c[0] + td.sin(a[0])], [x], [w])

    agree(fn, np.array([start, 1.0]), np.array([1.7, 1.3]))


def test_while_with_a_maximum():
    def fn(x):
        return while_loop(lambda a, c: td.sum(a[0]) < 100, lambda a, c: [a[0] * 1.5], [x], most=3)

    (native, *_), _ = agree(fn, np.array([1.0]))
    np.testing.assert_allclose(native.numpy(), [1.5**3])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 4])
def test_scan(reverse, length):
    def fn(h, xs, w):
        def f(carry, rows, consts):
            h = td.tanh(rows[0] @ consts[0] + carry[0])
            return [h], [h * 2, rows[0]]

        return scan(f, [h], [xs], [w], reverse)

    agree(fn, RNG.standard_normal(3), RNG.standard_normal((length, 2)), RNG.standard_normal((2, 3)), unknown={(1, 0)})


def test_nested():
    """A scan whose step chooses between a loop and a formula."""

    def fn(h, xs):
        def f(carry, rows, consts):
            (x,) = rows

            def loop(x, h):
                return while_loop(lambda a, c: td.sum(td.abs(a[0])) > 1, lambda a, c: [a[0] * 0.5], [x * h])

            (made,) = cond(td.sum(x) > 0, loop, lambda x, h: [x - h], x, carry[0])
            return [td.tanh(made)], [made]

        return scan(f, [h], [xs])

    xs = RNG.standard_normal((5, 2)) * 3
    agree(fn, RNG.standard_normal(2) + 2, xs, order=1)


def test_branches_in_flight_and_dead_ones_cost_no_task():
    def fn(p, x):
        def for_long(x):
            return while_loop(lambda a, c: td.sum(a[0]) < 1e6, lambda a, c: [a[0] + 1], [x])

        return cond(p, lambda x: [td.exp(x)], for_long, x)

    _, lowered = agree(fn, np.array(True), np.array([1.0]), order=0)
    assert lowered.last_outcome.executed <= 5
