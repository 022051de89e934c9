"""Operands of concatenations that are computed in their place (codegen/concat.py)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tandem as td
from tandem.codegen.schedule import KernelStep


def agree(f, *args):
    compiled = td.compile(f)
    for _ in range(2):
        got, expected = compiled(*args), f(*args)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_operands_that_others_look_at(axis):
    def f(x, y):
        a, b, c = x + y, x * y, td.exp(x)
        whole = td.cat([a, b, a, x, c], axis)  # a twice, and x is an input
        return whole * 2, b, c.T, whole, td.cat([whole, b * 2], axis) + 1

    agree(f, td.rand(3, 4, 5).requires_grad_(False)[..., 0], td.rand(3, 4))


def test_a_concatenation_of_concatenations_and_of_views():
    def f(x):
        a, b = td.sin(x), td.cos(x)
        inner = td.cat([a * 2, b], 1)
        outer = td.cat([inner + 1, td.cat([a.T, b.T]).T, inner], 1)
        return outer, inner.sum(), (a * 3)[:, ::2]

    agree(f, td.rand(6, 6))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 2), st.randoms(use_true_random=False))
def test_any_sizes_and_axes(lengths, axis, random):
    shapes = [(3, 2, 4)[:axis] + (n,) + (3, 2, 4)[axis + 1 :] for n in lengths]
    rng = np.random.default_rng(random.randint(0, 1 << 30))
    parts = [td.asarray(rng.random(s).astype(np.float32)) for s in shapes]

    def f(*parts):
        whole = td.cat([p * (i + 1) + 0.5 for i, p in enumerate(parts)], axis)
        return whole, whole.sum(axis)

    agree(f, *parts)


def test_gradients_and_loops():
    def f(c, xs):
        return td.scan(lambda c, x: (td.cat([c[:, 2:] * x, td.tanh(c[:, :2])], 1), td.cat([x, x * 2])), c, xs)[0].sum()

    agree(td.grad(f, argnums=(0, 1)), td.rand(3, 5), td.rand(4, 3, 1))


def test_short_runs_are_copied_rather_than_computed_in_their_place():
    def steps(width, function):
        def joined(x):
            return td.cat([function(x), function(x * 2)], 1) * 1

        compiled = td.compile(joined)
        compiled(td.rand(300, width))
        kernels = [s for s in compiled.graph().schedule.steps if isinstance(s, KernelStep)]
        return [b.kind == "view" for s in kernels for b in s.writes if b.shape[1] == width]

    assert steps(3, td.sin) == [False, False]
    assert steps(3, td.neg) == steps(64, td.sin) == [True, True]
