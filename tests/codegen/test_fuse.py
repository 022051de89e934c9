"""fuse: which values share a kernel."""

import numpy as np

import tandem.ops as F
from tests.codegen.lowering import lowered
from tests.codegen.ops import add, exp, reduce, softmax

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
