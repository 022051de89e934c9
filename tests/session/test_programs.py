"""Random nested programs of cond, while_loop and scan: eagerly, in a session, and in a session lowered to primitives."""

import numpy as np
import pytest

import tandem as td


class Maker:
    """A random function of a vector of three and a parameter of three, the same each time it is called."""

    def __init__(self, seed, depth):
        self.rng = np.random.default_rng(seed)
        self.make = self._block(depth)

    def _block(self, depth):
        parts = [self._part(depth) for _ in range(self.rng.integers(1, 3))]

        def run(x, w):
            for part in parts:
                x = part(x, w)
            return x

        return run

    def _part(self, depth):
        kind = self.rng.choice(["simple", "cond", "while", "scan"]) if depth else "simple"
        c = float(self.rng.uniform(0.3, 1.2))
        if kind == "simple":
            return [
                lambda x, w: td.sin(x * c) + w,
                lambda x, w: td.tanh(x) * w * c,
                lambda x, w: x - td.flip(x, 0) * c,
            ][self.rng.integers(3)]
        inner, other = self._block(depth - 1), self._block(depth - 1)
        if kind == "cond":
            return lambda x, w: td.cond(
                x.sum() * c > w.sum() * 0.2, lambda x: inner(x, w), lambda x: other(x, w) * c, x
            )
        if kind == "while":

            def loop(x, w):
                going = lambda i, x: td.logical_and(i < 3, td.abs(x).sum() < 4 * c + 2)
                return td.while_loop(going, lambda i, x: (i + 1, inner(x, w) + x * 0.5), (td.tensor(0) + 0, x))[1]

            return loop

        def scanned(x, w):
            carry, ys = td.scan(lambda h, row: (inner(h + row, w), h * row), x, td.stack([x, w, x * c]))
            return carry + ys.sum(0) * 0.3

        return scanned


@pytest.mark.parametrize(
    ("seed", "depth"), [(k, 2) for k in range(5)] + [pytest.param(k, 3, marks=pytest.mark.slow) for k in range(5, 15)]
)
def test_all_ways_to_run_agree(seed, depth):
    made = Maker(seed, depth).make
    rng = np.random.default_rng(100 + seed)
    a, b = rng.standard_normal((2, 3))
    x, w = td.tensor(a, requires_grad=True), td.tensor(b, requires_grad=True)
    y = made(x, w)
    td.cos(y).sum().backward()
    expected = [y.detach().numpy(), *(np.zeros(3) if t.grad is None else t.grad.numpy() for t in (x, w))]
    with td.Graph() as graph:
        px = td.placeholder(td.float64, (3,))
        pw = td.Variable(td.tensor(b))
        init = td.global_variables_initializer()
        out = made(px, pw)
        slopes = [
            td.zeros(3, dtype=td.float64) + 0 if g is None else g for g in td.gradients(td.cos(out).sum(), [px, pw])
        ]
        updated = pw.assign_sub(slopes[1] * 0.1)
    for regions in ("native", "primitives"):
        session = td.Session(graph, regions=regions)
        session.run(init)
        for got, want in zip(session.run([out, *slopes], {px: a}), expected, strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-9, atol=1e-9, err_msg=regions)
        session.run(updated, {px: a})
        np.testing.assert_allclose(session.run(pw).numpy(), b - expected[2] * 0.1, rtol=1e-9, atol=1e-9)


def test_random_numbers_in_regions_are_the_same_in_both_forms():
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (4,))
        noisy, drawn = td.scan(lambda h, row: (h + td.rand(4), td.rand(4)), x, td.stack([x, x, x]))
    results = []
    for regions in ("native", "primitives"):
        td.manual_seed(3)
        session = td.Session(graph, regions=regions)
        results.append([t.numpy() for _ in range(2) for t in session.run([noisy, drawn], {x: np.zeros(4)})])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert not np.allclose(results[0][0], results[0][2])
