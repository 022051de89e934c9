"""Sums over computed places: the routines do what their compositions do, which devices run."""

from __future__ import annotations

import numpy as np
import pytest

import tandem as td
from tandem.ops.define import op
from tandem.ops.taps import TapDot, TapScatter, TapSum
from tests.check import assert_close

N, C, SIZE, POINTS = 2, 3, 40, 150
RNG = np.random.default_rng(11)


def places(taps, run, index):
    """Runs of neighbours, some of which are not, or lie outside."""
    first = RNG.integers(0, SIZE - run, (taps // run, N, POINTS))
    made = (first[:, None] + np.arange(run)[None, :, None, None]).reshape(taps, N, POINTS)
    made[:, :, ::5] = RNG.integers(-1, SIZE, made[:, :, ::5].shape)
    return [td.tensor(o.astype(index)) for o in made]


def both(primitive, *inputs):
    @op(hidden=True, name="test_taps_routine")
    def routine(values: Tensors):  # noqa: F821
        return primitive(*values)

    @op(hidden=True, name="test_taps_composed")
    def composed(values: Tensors):  # noqa: F821
        return primitive.composed(*values)

    first, second = routine(list(inputs)), composed(list(inputs))
    return (first, second) if isinstance(first, tuple) else ((first,), (second,))


@pytest.mark.parametrize("taps, run", [(1, 1), (4, 2), (8, 2), (16, 4), (9, 3)])
@pytest.mark.parametrize("dtype, index", [("float32", "int32"), ("float64", "int64")])
def test_routines_do_what_their_compositions_do(taps, run, dtype, index):
    draw = lambda *shape: td.tensor(RNG.normal(size=shape).astype(dtype))
    x, g, offsets = draw(N, C, SIZE), draw(N, C, POINTS), places(taps, run, index)
    weights = [draw(N, POINTS) for _ in range(taps)]
    turned = draw(C, N, SIZE).permute(1, 0, 2)  # not as the routines want it
    for inputs in ((x, *offsets), (x, *offsets, *weights), (turned, *offsets, *weights)):
        for a, b in zip(*both(TapSum(taps, run), *inputs), strict=True):
            assert_close(a, b.numpy(), rtol=1e-5, atol=1e-5)
    for inputs in ((g, *offsets), (g, *offsets, *weights)):
        for a, b in zip(*both(TapScatter(taps, run, SIZE), *inputs), strict=True):
            assert_close(a, b.numpy(), rtol=1e-5, atol=1e-4)
    for a, b in zip(*both(TapDot(taps, run), g, x, *offsets), strict=True):
        assert_close(a, b.numpy(), rtol=1e-5, atol=1e-5)


def test_nothing_to_read():
    x = td.ones(1, 2, 5, 5)
    for shape in ((1, 0, 3, 2), (1, 3, 0, 2)):
        assert td.nn.functional.grid_sample(x, td.zeros(*shape)).shape == (1, 2, shape[1], shape[2])
    none = td.nn.functional.grid_sample(td.ones(1, 0, 5, 5), td.zeros(1, 2, 2, 2))
    assert none.shape == (1, 0, 2, 2)
