"""fuse: which values share a kernel."""

import numpy as np

import tandem as td
import tandem.ops as F
from tandem.codegen import KernelStep
from tandem.graph.symbolic import hint
from tests.codegen.lowering import lowered
from tests.codegen.ops import add, exp, neg, reduce, softmax

X = np.ones((6, 40), np.float32)


def kinds(function, *arrays, **options):
    return [group.kind for group in lowered(function, arrays, "fuse", **options).fusion.groups]


def test_elementwise_operators_of_one_shape_are_one_group():
    assert kinds(lambda x: exp(add(x, 1.0)), X) == ["elementwise"]


def test_passes_over_rows_are_one_group():
    assert kinds(softmax, X) == ["rows"]


def test_sums_of_columns_are_split_and_combined():
    assert kinds(lambda x: reduce("sum", x, (0,)), X) == ["columns", "columns"]


def test_a_call_parts_what_comes_before_it_from_what_comes_after():
    assert kinds(lambda x, y: exp(F.Matmul()(exp(x), y)), X, X.T.copy()) == ["elementwise", "library", "elementwise"]


ROWS = np.ones((128, 96), np.float32)
COLUMNS = np.ones((96, 128), np.float32).T  # lies along the first axis


def test_reductions_read_no_large_tensors_that_lie_along_different_axes():
    product = lambda x, y: F.Mul()(x, y)
    for axis in (0, 1):
        found = kinds(lambda x, y, axis=axis: reduce("sum", product(x, y), (axis,)), ROWS, COLUMNS)
        assert found[0] == "elementwise" and len(found) == (3 if axis == 0 else 2)
    small = kinds(lambda x, y: reduce("sum", product(x, y), (1,)), ROWS[:8, :8].copy(), COLUMNS[:8, :8].copy("F"))
    assert small == ["rows"]
    everything = kinds(lambda x, y: reduce("sum", product(x, y), (0, 1)), ROWS, COLUMNS)
    assert everything == ["elementwise", "rows"]  # tiles sum up what they transpose


def test_a_reduction_leaves_a_shared_value_that_is_transposed_to_its_own_kernel():
    def both(x, y):
        made = F.Mul()(x, y)
        return made, reduce("sum", made, (0,))

    assert kinds(both, ROWS, COLUMNS) == ["elementwise", "columns", "columns"]
    assert kinds(both, ROWS, ROWS) == ["columns", "columns"]


def test_what_is_padded_lies_as_its_source_unless_it_is_a_result():
    def multiplied(x, y):
        return F.Matmul()(F.Embed((0, 0), (1, 1), (130, 96))(exp(x)), y)

    lowering = lowered(multiplied, (COLUMNS, np.ones((96, 4), np.float32)), "fuse")
    (padded,) = [v for v in lowering.fusion.computes if v.op.name == "embed"]
    assert lowering.fusion.buffer_of[padded].order == (1, 0)
    alone = lowered(lambda x: F.Embed((0, 0), (1, 1), (130, 96))(x), (COLUMNS,), "fuse")
    assert alone.fusion.buffer_of[alone.graph.outputs[0]].order == (0, 1)


def test_columns_are_cut_into_chunks_along_the_longest_axis_that_is_summed():
    images = np.ones((2, 3, 512, 16), np.float32)
    lowering = lowered(lambda x: reduce("sum", x, (0, 2)), (images,), "make_steps")
    assert hint(lowering.steps[0].extent) == 3 * 512 // 32  # chunks of 32 pairs of rows


def test_costly_values_are_not_computed_in_the_short_loops_of_others():
    points, depths = np.ones((512, 1, 3), np.float32), np.ones((1, 32, 1), np.float32)

    def spread(function, shape):
        def f(x, y):
            made = F.Mul()(F.Expand(shape)(x), F.Expand(shape)(y))
            return made, function(function(made))

        return f

    assert kinds(spread(exp, (512, 32, 3)), points, depths) == ["elementwise", "elementwise"]
    assert kinds(spread(neg, (512, 32, 3)), points, depths) == ["elementwise"]
    wide = np.ones((512, 1, 64), np.float32)
    assert kinds(spread(exp, (512, 32, 64)), wide, depths) == ["elementwise"]


def _gradient_of_a_tree(x, leaf):
    """Every level's gradient is read twice, by way of a reshape and of slices."""
    x = x.detach().requires_grad_(True)
    g, mu, at = x.sigmoid(), td.ones(x.shape[0], 1), 0
    for depth in range(4):
        q, at = g[:, at : at + 2**depth], at + 2**depth
        mu = td.stack((mu * q, mu * (1 - q)), 2).reshape(x.shape[0], -1)
    (mu @ leaf).sum().backward()
    return x.grad


def test_what_several_read_through_slices_is_computed_once():
    step = td.compile(_gradient_of_a_tree)
    x, leaf = td.randn(64, 15), td.randn(16, 3)
    np.testing.assert_allclose(_gradient_of_a_tree(x, leaf), step(x, leaf), rtol=1e-5, atol=1e-6)
    kernels = [str(s.kernel).count("mul.f32") for s in step.graph().schedule.steps if isinstance(s, KernelStep)]
    assert max(kernels) < 20  # each level again for the one before it: 54
