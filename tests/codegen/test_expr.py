"""Scalar expressions."""

import pytest

from tandem import dtypes
from tandem.codegen.expr import ScalarBuilder, substitute, topological


def leaf(b, dtype=dtypes.float32, name=0):
    return b.make("var", (), dtype, name)


def test_equal_expressions_are_one_object():
    b = ScalarBuilder()
    x = leaf(b)
    assert (x + 1.0) * 2.0 is (x + 1.0) * 2.0
    assert x + 0.0 is not x + -0.0
    assert b.const(float("nan"), dtypes.float32) is b.const(float("nan"), dtypes.float32)


def test_numbers_take_the_type_of_the_other_operand():
    b = ScalarBuilder()
    assert (leaf(b, dtypes.int8) + 200).args[1].attr == -56
    assert (2 - leaf(b, dtypes.float64)).dtype is dtypes.float64
    with pytest.raises(TypeError, match="add of int32 and float32"):
        leaf(b, dtypes.int32) + leaf(b)


def test_narrow_floats_compute_in_float32():
    b = ScalarBuilder()
    x = leaf(b, dtypes.bfloat16)
    assert (x + 1.0).dtype is dtypes.float32
    assert b.cast(b.widen(x), dtypes.bfloat16) is x
    rounded = b.cast(b.cast(leaf(b), dtypes.float16), dtypes.float32)
    assert rounded.op == "cast"
    assert rounded.args[0].dtype is dtypes.float16


def test_integers_fold():
    b = ScalarBuilder()
    x = leaf(b, dtypes.int64)
    assert x + 0 is x
    assert x * 1 is x
    assert (x * 0).attr == 0
    assert (b.const(3, dtypes.int64) * 4 + 1).attr == 13


def test_bool_arithmetic_is_logic():
    b = ScalarBuilder()
    x, y = leaf(b, dtypes.bool_), leaf(b, dtypes.bool_, 1)
    assert (x + y).op == "or"
    assert (x * y).op == "and"
    assert (x == y).dtype is dtypes.bool_


def test_no_truth_while_generating():
    with pytest.raises(TypeError, match=r"b\.where"):
        bool(leaf(ScalarBuilder()) > 0.0)


def test_substitute_and_order():
    b = ScalarBuilder()
    x, y = leaf(b), leaf(b, name=1)
    (new,) = substitute(b, [(x + 1.0) * y], {x.id: y})
    assert new is (y + 1.0) * y
    order = [e.id for e in topological([new])]
    assert order.index(y.id) < order.index(new.id)
