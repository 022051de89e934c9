"""Graphs built by hand, lowered and run, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tandem import dtypes
from tandem.codegen import KernelStep, LibraryStep, lower
from tandem.ops.create import Constant, Iota, RandomBits, Size
from tandem.ops.define import LibraryOp
from tandem.ops.index import CheckIndex, Gather
from tandem.ops.movement import Embed, Permute, Reshape, Slice
from tests.codegen.ops import add, bcast, cast, div, exp, layer_norm, mul, named, neg, reduce, softmax, sub
from tests.codegen.run_schedule import build, compute, run

rng = np.random.default_rng(7)


def f32(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def softmax_of(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def check(function, reference, *arrays, tolerance=1e-5, steps=None):
    expected = reference(*arrays)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for parts in (1, 3):
        trace = build(function, arrays)
        schedule = lower(trace.graph, trace.layouts)
        if steps is not None:
            assert steps == [s.kernel.name for s in schedule.steps]
        results = run(schedule, trace.graph, arrays, parts=parts)
        for e, r in zip(expected, results, strict=True):
            assert e.shape == r.shape
            np.testing.assert_allclose(r.astype(np.float64), e.astype(np.float64), rtol=tolerance, atol=tolerance)
    return schedule, trace


# -- elementwise


def test_chain_is_one_kernel():
    x, y = f32(37, 53), f32(37, 53)
    check(lambda a, b: mul(add(a, b), b), lambda a, b: (a + b) * b, x, y, steps=["fused_add_mul"])


@pytest.mark.parametrize("shape", [(), (1,), (7,), (4096,), (4097,), (3, 1, 5), (2, 3, 4, 5), (0,), (3, 0, 2)])
def test_shapes(shape):
    check(lambda a: add(a, 1.0), lambda a: a + 1, f32(*shape))


@pytest.mark.parametrize(
    "array",
    [f32(9, 11).T, f32(4, 5, 6).transpose(2, 0, 1), f32(9, 11)[::2, 1:], f32(9, 11)[::-1, ::-1],
     np.broadcast_to(f32(1, 11), (9, 11)), f32(9, 11)[:, :1], f32(9, 1, 11).transpose(2, 1, 0)],
)  # fmt: skip
def test_layouts(array):
    check(lambda a: mul(add(a, 1.0), a), lambda a: (a + 1) * a, array)


def test_permuted_input_gives_permuted_output():
    x = f32(5, 6, 7).transpose(1, 2, 0)
    trace = build(lambda a: add(a, 1.0), [x])
    schedule = lower(trace.graph, trace.layouts)
    assert schedule.buffer_of[trace.graph.outputs[0]].order == (2, 0, 1)
    (step,) = schedule.steps
    assert "loop items" not in str(step.kernel)  # one flat loop


def test_broadcasting():
    x, row, column = f32(37, 53), f32(53), f32(37, 1)

    def function(a, r, c):
        return add(mul(a, bcast(Reshape((1, r.shape[0]))(r), a.shape)), bcast(c, a.shape))

    check(function, lambda a, r, c: a * r + c, x, row, column, steps=["fused_mul_add"])


@pytest.mark.parametrize("shape", [(64, 64), (128, 70), (9, 200), (200, 9), (3, 5), (1, 7)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8])
def test_transposed_operand(shape, dtype):
    x = (rng.random(shape) * 9).astype(dtype)
    y = np.ascontiguousarray(x.T * 2)
    check(lambda a, b: add(Permute((1, 0))(a), b), lambda a, b: a.T + b, x, y)
    x3, y3 = np.stack([x, x + 1]), np.stack([y, y])
    check(lambda a, b: add(Permute((0, 2, 1))(a), b), lambda a, b: a.transpose(0, 2, 1) + b, x3, y3)


@pytest.mark.parametrize(
    "dtype",
    [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float64,
     ml_dtypes.bfloat16],
)  # fmt: skip
def test_dtypes(dtype):
    x = (rng.random((9, 37)) * 20).astype(dtype) if dtype is not np.bool_ else rng.random((9, 37)) > 0.5
    tolerance = {np.float16: 2e-3, ml_dtypes.bfloat16: 2e-2}.get(dtype, 1e-6)
    check(lambda a: add(a, a), lambda a: a + a, x)
    check(lambda a: reduce("max", a, (1,)), lambda a: a.max(1, keepdims=True), x)
    check(lambda a: reduce("min", a, (0,)), lambda a: a.min(0, keepdims=True), x)
    check(
        lambda a: mul(cast(a, dtypes.float32), 0.5),
        lambda a: a.astype(np.float32) * np.float32(0.5),
        x,
        tolerance=tolerance,
    )
    for target in (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.uint8, dtypes.bool_, dtypes.int64):
        check(lambda a, target=target: cast(a, target), lambda a, target=target: a.astype(target.numpy), x)


def test_rounding_to_16_bits_is_to_nearest_even():
    x = np.concatenate([rng.standard_normal(4000) * 100, [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-8, 65504, 1e30]])
    x = x.astype(np.float32)
    for dtype, to in ((dtypes.float16, np.float16), (dtypes.bfloat16, ml_dtypes.bfloat16)):
        got = compute(lambda a, dtype=dtype: cast(a, dtype), x)
        with np.errstate(over="ignore"):
            expected = x.astype(to)
        np.testing.assert_array_equal(expected.astype(np.float32), got.astype(np.float32))


def test_integer_division_never_traps():
    x = np.array([7, -7, 7, -7, 5, -128, -128, 0], np.int8)
    y = np.array([2, 2, -2, -2, 0, -1, 1, 3], np.int8)
    quotient = compute(lambda a, b: named("floordiv", lambda b, x, y: x // y)(a, b), x, y)
    remainder = compute(lambda a, b: named("mod", lambda b, x, y: x % y)(a, b), x, y)
    np.testing.assert_array_equal([3, -4, -4, 3, 0, -128, -128, 0], quotient)
    np.testing.assert_array_equal([1, 1, -1, -1, 0, 0, 0, 0], remainder)


def test_leaves():
    x = f32(4, 5)

    def function(a):
        ramp = Iota(a.shape, 1, dtypes.float32)()
        size = Size(a.shape[0] * a.shape[1], dtypes.float32)()
        return add(mul(ramp, size), a), bcast(Reshape((1, 1))(Constant(2.5, dtypes.float32)()), a.shape)

    check(function, lambda a: (np.arange(5, dtype=np.float32) * 20 + a, np.full((4, 5), 2.5, np.float32)), x)


def test_random_bits_are_philox():
    seed, offset = np.array(0x123456789ABCDEF, np.int64), np.array(40, np.int64)
    got = compute(lambda s, o: RandomBits((3, 5), 2)(s, o), seed, offset)
    assert got.dtype == np.uint32
    expected = [philox(int(seed), 40 + i)[2] for i in range(15)]
    np.testing.assert_array_equal(np.array(expected, np.uint32).reshape(3, 5), got)


def philox(seed, counter):
    c = [counter & 0xFFFFFFFF, counter >> 32, 0, 0]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


# -- reductions


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_reductions(kind, axes, order):
    x = f32(5, 7, 19).transpose(order)
    check(lambda a: reduce(kind, a, axes), lambda a: getattr(np, kind)(a, axis=axes, keepdims=True), x, tolerance=1e-4)


@pytest.mark.parametrize("shape", [(5000,), (3, 5000), (5000, 3), (300, 300), (1, 77), (70, 2, 300)])
def test_large_sums(shape):
    x = f32(*shape)
    for axes in [(0,), (len(shape) - 1,), tuple(range(len(shape)))]:
        check(
            lambda a, axes=axes: reduce("sum", a, axes),
            lambda a, axes=axes: a.astype(np.float64).sum(axes, keepdims=True), x, tolerance=2e-4,
        )  # fmt: skip


def test_reductions_of_nothing():
    for shape, axes in [((0, 3), (0,)), ((3, 0), (1,)), ((0,), (0,)), ((0, 3), (1,)), ((0, 3), (0, 1))]:
        check(lambda a, axes=axes: reduce("sum", a, axes), lambda a, axes=axes: a.sum(axes, keepdims=True), f32(*shape))


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_arg_reductions_take_the_first(kind, axis):
    x = rng.integers(0, 4, (5, 7, 33)).astype(np.float32)
    reference = lambda a: getattr(np, kind)(a, axis=axis, keepdims=True)
    check(lambda a: reduce(kind, a, (axis,)), reference, x)
    x[2, 3, 4] = x[2, 3, 20] = x[4, 3, 4] = np.nan
    check(lambda a: reduce(kind, a, (axis,)), reference, x)
    check(lambda a: reduce(kind, a, (0, 1, 2)), lambda a: getattr(np, kind)(a).reshape(1, 1, 1), x)


def test_nan_reaches_max():
    x = f32(4, 40)
    x[1, 17] = np.nan
    for axes in [(0,), (1,), (0, 1)]:
        check(lambda a, axes=axes: reduce("max", a, axes), lambda a, axes=axes: a.max(axes, keepdims=True), x)


def test_any_and_all():
    x = rng.random((6, 40)) > 0.9
    for axes in [(0,), (1,), (0, 1)]:
        check(lambda a, axes=axes: reduce("any", a, axes), lambda a, axes=axes: a.any(axes, keepdims=True), x)
        check(lambda a, axes=axes: reduce("all", a, axes), lambda a, axes=axes: a.all(axes, keepdims=True), x)


def test_accumulator_dtype():
    x = np.full((3, 500), 100, np.int8)
    check(lambda a: reduce("sum", a, (1,), dtypes.int64), lambda a: a.sum(1, keepdims=True, dtype=np.int64), x)
    check(lambda a: reduce("sum", a, (0,), dtypes.int64), lambda a: a.sum(0, keepdims=True, dtype=np.int64), x)


def test_reduction_over_size_one():
    x = f32(1, 5)
    check(lambda a: reduce("sum", a, (0,)), lambda a: a, x)
    check(lambda a: reduce("argmax", a, (0,)), lambda a: np.zeros((1, 5), np.int64), x)


@pytest.mark.parametrize("shape", [(37, 53), (5, 8), (3, 1000), (2, 3, 17), (64, 10)])
def test_softmax_is_one_kernel(shape):
    check(softmax, softmax_of, f32(*shape), steps=["fused_max_sub_exp_sum_div"])


def test_softmax_keeps_exp_in_its_output():
    trace = build(softmax, [f32(8, 8)])
    (step,) = lower(trace.graph, trace.layouts).steps
    assert str(step.kernel).count("store 1") == 2
    assert len(step.buffers) == 2


@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_over_other_axes(axis):
    check(lambda a: softmax(a, axis), lambda a: softmax_of(a, axis), f32(9, 33, 21))


def test_softmax_in_bfloat16():
    x = f32(9, 40).astype(ml_dtypes.bfloat16)
    check(softmax, lambda a: softmax_of(a.astype(np.float32)), x, tolerance=1e-2)


def test_layer_norm_is_one_kernel():
    def reference(x):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

    schedule, _ = check(layer_norm, reference, f32(6, 7, 50), tolerance=1e-4)
    assert len(schedule.steps) == 1


def test_results_at_both_ranks():
    def function(a):
        top = reduce("max", a, (1,))
        shifted = sub(a, bcast(top, a.shape))
        total = reduce("sum", exp(shifted), (1,))
        return shifted, total, add(top, total)

    def reference(a):
        top = a.max(1, keepdims=True)
        total = np.exp(a - top).sum(1, keepdims=True)
        return a - top, total, top + total

    schedule, _ = check(function, reference, f32(11, 60))
    assert len(schedule.steps) == 1


def test_elementwise_output_and_full_sum_share_a_kernel():
    x = f32(100, 130)
    schedule, _ = check(
        lambda a: (lambda y: (y, div(reduce("sum", y, (0, 1)), Size(a.shape[0] * a.shape[1], dtypes.float32)())))(exp(a)),
        lambda a: (np.exp(a), np.exp(a).astype(np.float64).mean(keepdims=True)), x, tolerance=1e-4,
    )  # fmt: skip
    assert len(schedule.steps) == 2


def test_gradient_and_its_column_sum_share_a_kernel():
    x, y = f32(90, 40), f32(90, 40)
    schedule, _ = check(
        lambda a, b: (lambda g: (g, reduce("sum", g, (0,))))(mul(exp(a), b)),
        lambda a, b: (np.exp(a) * b, (np.exp(a) * b).sum(0, keepdims=True)), x, y, tolerance=1e-4,
    )  # fmt: skip
    assert len(schedule.steps) == 2


# -- movement


def test_views_are_not_computed():
    x = f32(6, 7, 8)

    def function(a):
        return (
            Permute((2, 0, 1))(a), Reshape((a.shape[0] * a.shape[1], a.shape[2]))(a),
            Slice((1, 0, 2), (2, 1, 1), (2, a.shape[1], a.shape[2] - 3))(a), a,
        )  # fmt: skip

    schedule, trace = check(function, lambda a: (a.transpose(2, 0, 1), a.reshape(42, 8), a[1:5:2, :, 2:7], a), x)
    assert schedule.steps == []
    assert schedule.buffer_of[trace.graph.outputs[3]].kind == "input"


def test_permuted_result_is_a_view_of_what_is_computed():
    schedule, trace = check(lambda a: Permute((1, 0))(exp(a)), lambda a: np.exp(a).T, f32(5, 6))
    assert schedule.buffer_of[trace.graph.outputs[0]].kind == "view"


def test_reshape_that_needs_a_copy():
    x = f32(5, 7, 9)
    check(lambda a: Reshape((a.shape[2] * a.shape[0] * a.shape[1],))(Permute((2, 0, 1))(a)),
          lambda a: a.transpose(2, 0, 1).reshape(-1), x)  # fmt: skip
    check(lambda a: add(Reshape((a.shape[0], a.shape[2] * a.shape[1]))(Permute((0, 2, 1))(a)), 1.0),
          lambda a: a.transpose(0, 2, 1).reshape(5, -1) + 1, x)  # fmt: skip


def test_reshape_inside_a_kernel_stays_linear():
    x = f32(6, 7, 8)
    trace = build(lambda a: add(Reshape((a.shape[0], a.shape[1] * a.shape[2]))(add(a, 1.0)), 1.0), [x])
    (step,) = lower(trace.graph, trace.layouts).steps
    assert "imod" not in str(step.kernel)


@pytest.mark.parametrize("step", [1, 2, -3])
def test_embed(step):
    x = f32(7, 11)
    start = 3 if step > 0 else 40

    def reference(a):
        out = np.zeros((20, 50), np.float32)
        for j in range(11):
            out[2 : 2 + 7, start + j * step] = a[:, j]
        return out

    def function(a):
        return Embed((2, start), (1, step), (20, 50))(a)

    check(function, reference, x)
    check(lambda a: add(function(exp(a)), 1.0), lambda a: reference(np.exp(a)) + 1, x)


def test_embed_of_nothing():
    check(lambda a: Embed((1, 0), (1, 1), (4, a.shape[1]))(a), lambda a: np.zeros((4, 3), np.float32), f32(0, 3))


def test_gather():
    x, rows = f32(11, 6), rng.integers(-11, 11, (4, 5))
    columns = rng.integers(0, 6, (4, 5)).astype(np.int32)
    check(lambda a, i: Gather()(a, i), lambda a, i: a[i], x, rows)
    check(lambda a, i: add(Gather()(exp(a), i), 1.0), lambda a, i: np.exp(a)[i] + 1, x, rows)
    check(lambda a, i, j: Gather()(a, i, j), lambda a, i, j: a[i, j], x, rows, columns)
    check(lambda a, i: reduce("sum", Gather()(a, i), (2,)), lambda a, i: a[i].sum(2, keepdims=True), x, rows)


# -- steps and memory


class Product(LibraryOp):
    name = "product"
    routine = "product"

    def infer(self, a, b):
        return a.with_shape((a.shape[0], b.shape[1]))

    def attributes(self, a, b):
        return (a.shape[1],), ()


def _product(step, inputs, outputs, ints):
    assert ints[0] == inputs[0].shape[1]
    outputs[0][...] = inputs[0] @ inputs[1]


def _check_index(step, inputs, outputs, ints):
    assert not outputs
    assert (-ints[0] <= inputs[0]).all() and (inputs[0] < ints[0]).all()


LIBRARIES = {"product": _product, "check_index": _check_index}


def test_library_calls_take_views():
    x, w = f32(5, 7), f32(9, 7)

    def function(a, b):
        y = Product()(add(a, 1.0), Permute((1, 0))(b))
        return mul(y, y)

    trace = build(function, [x, w])
    schedule = lower(trace.graph, trace.layouts)
    assert [KernelStep, LibraryStep, KernelStep] == [type(s) for s in schedule.steps]
    (result,) = run(schedule, trace.graph, [x, w], LIBRARIES)
    np.testing.assert_allclose(((x + 1) @ w.T) ** 2, result, rtol=1e-4)


def test_checked_index_is_not_copied():
    x, rows = f32(11, 6), rng.integers(0, 11, (4,))
    trace = build(lambda a, i: Gather()(a, CheckIndex(a.shape[0], 0)(i)), [x, rows])
    schedule = lower(trace.graph, trace.layouts)
    assert len(schedule.steps) == 2
    np.testing.assert_array_equal(x[rows], run(schedule, trace.graph, [x, rows], LIBRARIES)[0])


def test_saved_values_are_in_memory():
    x = f32(5, 6)
    trace = build(lambda a: mul(exp(a), 2.0), [x])
    saved = [n.outputs[0] for n in trace.graph.nodes if n.op.name == "exp"]
    schedule = lower(trace.graph, trace.layouts, saved)
    run(schedule, trace.graph, [x])
    assert saved[0] in schedule.buffer_of
    assert len(schedule.steps) == 1


def test_mutation_in_place():
    x, y = f32(5, 6), f32(5, 6)
    before = x.copy()
    trace = build(lambda a, b: (sub(a, b), mul(a, 2.0)), [x, y], mutate={0: 0})
    schedule = lower(trace.graph, trace.layouts)
    (doubled,) = run(schedule, trace.graph, [x, y])
    np.testing.assert_allclose(before - y, x)
    np.testing.assert_allclose(before * 2, doubled)
    assert len(schedule.steps) == 1
    assert len(schedule.steps[0].buffers) == 3


def test_mutation_of_what_is_read_elsewhere():
    x = f32(5, 5)
    before = x.copy()
    trace = build(lambda a: add(Permute((1, 0))(a), 1.0), [x], mutate={0: 0})
    run(lower(trace.graph, trace.layouts), trace.graph, [x])
    np.testing.assert_allclose(before.T + 1, x)


def test_mutation_by_a_row_kernel():
    x = f32(5, 9)
    before = x.copy()
    trace = build(softmax, [x], mutate={0: 0})
    run(lower(trace.graph, trace.layouts), trace.graph, [x])
    np.testing.assert_allclose(softmax_of(before), x, rtol=1e-5)


def test_inputs_that_change_places():
    x, y = f32(5, 6), f32(5, 6)
    x0, y0 = x.copy(), y.copy()
    trace = build(lambda a, b: (b, a), [x, y], mutate={0: 0, 1: 1})
    run(lower(trace.graph, trace.layouts), trace.graph, [x, y])
    np.testing.assert_array_equal(y0, x)
    np.testing.assert_array_equal(x0, y)


def test_mutated_strided_input():
    base = f32(10, 12)
    x = base[::2, 3:]
    before = x.copy()
    trace = build(lambda a: add(a, 1.0), [x], mutate={0: 0})
    run(lower(trace.graph, trace.layouts), trace.graph, [x])
    np.testing.assert_allclose(before + 1, x)


def test_one_kernel_serves_all_sizes():
    trace = build(softmax, [f32(4, 5)])
    schedule = lower(trace.graph, trace.layouts)
    for shape in [(3, 7), (2, 9000), (700, 3), (0, 5)]:
        x = f32(*shape)
        np.testing.assert_allclose(softmax_of(x) if x.size else x, run(schedule, trace.graph, [x])[0], rtol=1e-5)
    trace = build(lambda a: (reduce("sum", a, (0,)), reduce("sum", a, (0, 1))), [f32(4, 5)])
    schedule = lower(trace.graph, trace.layouts)
    for shape in [(3, 7), (2, 9000), (70000, 3), (0, 5), (3000, 2000)]:
        x = f32(*shape)
        rows, total = run(schedule, trace.graph, [x], parts=4)
        np.testing.assert_allclose(x.astype(np.float64).sum(0, keepdims=True), rows, rtol=1e-3, atol=1e-2)
        np.testing.assert_allclose(x.astype(np.float64).sum(keepdims=True), total, rtol=1e-3, atol=1e-1)


def test_equal_computations_share_a_kernel():
    keys = []
    for shape in [(4, 5), (30, 2)]:
        trace = build(lambda a: neg(exp(a)), [f32(*shape)])
        keys.append(lower(trace.graph, trace.layouts).steps[0].kernel.key)
    assert keys[0] == keys[1]


def test_long_chains_do_not_recurse():
    def function(a):
        for _ in range(3000):
            a = add(a, 1.0)
        return a

    x = f32(3, 4)
    np.testing.assert_allclose(x + 3000, compute(function, x), rtol=1e-5)


def test_merged_heads_are_two_loops():
    x = f32(3, 5, 4, 6)

    def function(a):
        b, h, t, d = a.shape
        return add(Reshape((b, t, h * d))(Permute((0, 2, 1, 3))(a)), 1.0)

    schedule, _ = check(function, lambda a: a.transpose(0, 2, 1, 3).reshape(3, 4, 30) + 1, x)
    assert "idiv" not in str(schedule.steps[0].kernel)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("axes", [(0, 1), (1, 2), (0, 2), (0, 1, 2)])
def test_arg_reductions_over_several_axes_count_in_row_major_order(order, axes):
    x = rng.integers(0, 3, (4, 5, 6)).astype(np.float32).transpose(order)

    def reference(a):
        kept = [i for i in range(3) if i not in axes]
        flat = a.transpose(*kept, *axes).reshape(*[a.shape[i] for i in kept], -1)
        return flat.argmax(-1).reshape([1 if i in axes else n for i, n in enumerate(a.shape)])

    check(lambda a: reduce("argmax", a, axes), reference, x)


@pytest.mark.parametrize("shape", [(3, 2, 5, 70, 24), (2, 1, 3, 5, 40)])
def test_column_sums_across_merged_axes_divide_nothing(shape):
    def function(a):
        n, b, h, t, d = a.shape
        rows = Reshape((b * t, n * h * d))(Permute((1, 3, 0, 2, 4))(a))
        return neg(rows), reduce("sum", rows, (0,))

    def reference(a):
        rows = a.transpose(1, 3, 0, 2, 4).reshape(shape[1] * shape[3], -1)
        return -rows, rows.sum(0, keepdims=True)

    schedule, _ = check(function, reference, f32(*shape), tolerance=1e-4)
    for step in schedule.steps:
        assert "imod" not in str(step.kernel)


def test_groups_of_a_reshape_are_found_from_the_end_too():
    from tandem.codegen.buffer import factor_groups
    from tandem.graph.symbolic import Symbols

    symbols = Symbols()
    a, b, c = (symbols.new(n, ("size", 0, i), not_one=True) for i, n in enumerate((4, 256, 1024)))
    assert factor_groups((a, b, 3, 64), (c, 192)) == [([0, 1], [0]), ([2, 3], [1])]
    assert factor_groups((5, a, b, 64), (5, c, 8, 8)) == [([0], [0]), ([1, 2], [1]), ([3], [2, 3])]
