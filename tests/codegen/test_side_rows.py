"""Short rows that a kernel reads side by side: results are those of rows that are read alone, on processors of any width."""

import re

import ml_dtypes
import numpy as np
import pytest

from tandem import dtypes
from tandem.codegen import KernelStep, cache, lower
from tandem.codegen.compile import cpu_flags, object_of, text_of
from tandem.codegen.cpu.target import SIDE_ROW
from tandem.codegen.levels import LEVELS
from tandem.codegen.loops import Kernel
from tests.codegen.ops import layer_norm, mul, reduce
from tests.codegen.run_schedule import build, run

rng = np.random.default_rng(11)
KINDS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}
SIDE = re.compile(r"finish \d+ \d+ \d+ \d+")  # several rows
LENGTHS = [5, 8, 16, 19, 64, 100, SIDE_ROW]
WIDTHS = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]


def rows_of(length: int, dtype, total=1 << 15):
    """So many short rows that they are worth it, and not a multiple of what a kernel takes at once."""
    return (rng.normal(size=(total // length + 5, length)) * 3).astype(dtype)


def steps_of(function, *arrays):
    trace = build(function, arrays)
    schedule = lower(trace.graph, trace.layouts)
    return trace, schedule, [str(s.kernel) for s in schedule.steps if isinstance(s, KernelStep)]


@pytest.fixture(params=WIDTHS)
def width(request, monkeypatch):
    """Kernels are compiled for a level of processors."""
    level = LEVELS[request.param]
    if (
        not {"x86-64-v3": {"avx2", "fma"}, "x86-64-v4": {"avx512bw", "avx512vl"}}.get(level.name, {"sse2"})
        <= cpu_flags()
    ):
        pytest.skip(f"this processor is not of level {level.name}")
    monkeypatch.setattr(Kernel, "address", lambda k: cache._address(object_of(text_of(k, level), level), "kernel"))
    return level


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16, np.int32, np.int64])
def test_short_rows_are_reduced_several_at_a_time(kind, dtype, width):
    for length in LENGTHS:
        x = rows_of(length, dtype)
        if kind == "prod":
            x = np.where(x > 0, 1, -1).astype(dtype)
        trace, schedule, texts = steps_of(lambda v: reduce(kind, v, (1,)), x)
        assert SIDE.search(texts[0])
        for parts in (1, 3):
            (found,) = run(schedule, trace.graph, [x], parts=parts)
            wide = x if np.issubdtype(dtype, np.integer) else x.astype(np.float64)
            bar = {2: 1e-2, 4: 1e-5, 8: 1e-12}[np.dtype(dtype).itemsize]
            expected = KINDS[kind](wide, axis=1).astype(np.float64)
            np.testing.assert_allclose(expected, found.astype(np.float64).reshape(len(x)), bar, bar)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_among_several_has_the_bits_of_a_row_alone(kind, width):
    for length in LENGTHS:
        x = rows_of(length, np.float32)
        x[7, 3] = np.nan
        trace, schedule, _ = steps_of(lambda v: reduce(kind, v, (1,)), x)
        (together,) = run(schedule, trace.graph, [x])
        step, few = schedule.steps[0], x[:7].copy()  # the same kernel, on fewer rows than it takes at once
        (alone,) = run(schedule, trace.graph, [few])
        assert step.kernel.name == kind
        np.testing.assert_array_equal(alone.view(np.int32), together[:7].view(np.int32))
        assert np.isnan(together.ravel()[7]) and np.isnan(together).sum() == 1


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int16, np.uint16])
def test_small_integers_are_added_up_in_blocks(dtype, width):
    """Along rows and across them, short and long ones, with the largest numbers there are."""
    for shape, axes in (
        ((4000, 9), (1,)),
        ((4000, 9), (0,)),
        ((9, 4000), (1,)),
        ((70000,), (0,)),
        ((30, 70, 50), (1,)),
        ((9, 70000), (0, 1)),
    ):
        high = 1 if dtype is np.bool_ else np.iinfo(dtype).max
        x = rng.choice(np.array([high, high, high - 1], dtype=dtype), size=shape)
        trace, schedule, texts = steps_of(lambda v, axes=axes: reduce("sum", v, axes, dtypes.int64), x)
        assert "cast.i32" in texts[0]
        for parts in (1, 3):
            (found,) = run(schedule, trace.graph, [x], parts=parts)
            np.testing.assert_array_equal(x.sum(axes, dtype=np.int64, keepdims=True), found)


@pytest.mark.parametrize("kind", ["any", "all"])
def test_bits_of_short_rows(kind, width):
    for length in LENGTHS:
        x = rows_of(length, np.float32) > (2.5 if kind == "any" else -2.5)
        trace, schedule, texts = steps_of(lambda v: reduce(kind, v, (1,)), x)
        assert SIDE.search(texts[0])
        (found,) = run(schedule, trace.graph, [x])
        np.testing.assert_array_equal(getattr(np, kind)(x, axis=1), found.reshape(len(x)))


def test_rows_that_several_passes_read(width):
    for length in (16, 33):
        x = rows_of(length, np.float32)
        mean, spread = x.mean(1, keepdims=True), x.std(1, keepdims=True)
        trace, schedule, _ = steps_of(layer_norm, x)
        (found,) = run(schedule, trace.graph, [x])
        np.testing.assert_allclose((x - mean) / np.sqrt(spread**2 + 1e-5), found, 2e-5, 2e-5)


def test_results_and_what_follows_them_at_their_rank(width):
    x = rows_of(12, np.float32)
    trace, schedule, texts = steps_of(
        lambda v: (mul(reduce("max", v, (1,)), reduce("sum", v, (1,))), reduce("sum", v, (1,))), x
    )
    assert len(texts) == 1
    product, total = run(schedule, trace.graph, [x])
    np.testing.assert_allclose(x.max(1, keepdims=True) * x.sum(1, keepdims=True), product, 1e-5, 1e-4)
    np.testing.assert_allclose(x.sum(1, keepdims=True), total, 1e-5, 1e-5)


def test_rows_of_several_axes_and_strided_ones(width):
    whole = rng.normal(size=(41, 64, 3, 10)).astype(np.float32)
    for x, axes in (
        (whole, (2, 3)),
        (whole[:, :, :, ::2], (2, 3)),
        (whole[:, ::2], (3,)),
        (whole[:, :, 1:, 1:], (2, 3)),
    ):
        trace, schedule, _ = steps_of(lambda v, axes=axes: reduce("sum", v, axes), x)
        (found,) = run(schedule, trace.graph, [x], parts=2)
        np.testing.assert_allclose(x.astype(np.float64).sum(axes, keepdims=True), found, 1e-5, 1e-5)


def test_long_rows_are_read_one_after_the_other():
    _, _, texts = steps_of(lambda v: reduce("sum", v, (1,)), rows_of(SIDE_ROW + 1, np.float32))
    assert not SIDE.search(texts[0])
