"""Arrays larger than the caches are stored past them. See Note [Past the caches]."""

import numpy as np
import pytest

import tandem as td
from tandem.codegen import lower
from tandem.codegen.compile import cpu_flags, text_of
from tandem.codegen.loops import PAST_CACHES
from tests.codegen.ops import add, mul
from tests.codegen.run_schedule import build

COUNT = PAST_CACHES // 4


def values(count, seed=0):
    return np.random.default_rng(seed).random(count, dtype=np.float32)


@pytest.mark.parametrize("extra", [-1, 0, 5], ids=["below", "at", "above"])
@pytest.mark.parametrize("f", [lambda x: 2 * x + 1, lambda x: td.tanh(0.5 * x) * 3], ids=["a short loop", "a long one"])
def test_values(f, extra):
    x = values(COUNT + extra)
    given, small = td.from_numpy(x), td.from_numpy(x[-1000:].copy())
    for run in (f, td.compile(f)):
        result = run(given).numpy()
        assert result.shape == x.shape
        np.testing.assert_array_equal(result[-1000:], run(small).numpy())
        np.testing.assert_allclose(result[:: 4096 + 7], f(td.from_numpy(x[:: 4096 + 7].copy())).numpy(), rtol=1e-6)


def test_other_types_and_several_results():
    x = values(COUNT + 3)
    given = td.from_numpy(x)
    both = td.compile(lambda x: ((x * 2).to(td.bfloat16), (x + 1).to(td.float64)))
    for result, want in zip(both(given), both(td.from_numpy(x[:4096].copy()))):
        assert (result[:4096] == want).all()
    np.testing.assert_array_equal(both(given)[1][-5:].numpy(), (x[-5:] + np.float32(1)).astype(np.float64))


def test_in_place_and_at_odd_addresses():
    x = values(COUNT + 9)
    t = td.from_numpy(x.copy())
    t.mul_(3)
    np.testing.assert_array_equal(t.numpy(), x * 3)
    t[1:].copy_(td.from_numpy(x[:-1]))  # four bytes past a multiple of a register's
    np.testing.assert_array_equal(t.numpy()[1:], x[:-1])
    assert t.numpy()[0] == x[0] * 3


@pytest.mark.skipif("sse2" not in cpu_flags(), reason="only processors of this kind have such stores")
def test_kernels_ask_how_much_there_is():
    x = values(100)
    trace = build(lambda a, b: mul(add(a, b), b), [x, x])
    (step,) = lower(trace.graph, trace.layouts).steps
    text = text_of(step.kernel)
    assert "!nontemporal" in text and "sfence" in text and f"{COUNT}" in text
