"""Constants of the classic API."""

import numpy as np
import pytest

import tandem as td
import tandem.v1 as tf
from tests.v1.runs import run


def test_a_constant_with_a_shape():
    assert run(tf.constant([1, 2, 3, 4, 5, 6], shape=[2, 3])).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert run(tf.constant([1, 2], shape=[2, 2])).tolist() == [[1, 2], [2, 2]]
    assert run(tf.constant(2.5, shape=[3])).tolist() == [2.5, 2.5, 2.5]
    assert run(tf.constant(np.arange(4.0), shape=(2, 2))).dtype == np.float64
    assert tf.constant([0.5], shape=[2]).dtype is tf.float32
    assert run(tf.constant([], shape=[0, 3])).shape == (0, 3)
    with pytest.raises(td.ShapeError, match="3 values for shape"):
        tf.constant([1, 2, 3], shape=[2])


def test_python_integers_are_int32():
    for made in (
        tf.constant([1, 2]),
        tf.constant(1),
        tf.range(3),
        tf.fill([2], 7),
        tf.Variable([1, 2]),
        tf.Variable(3),
        tf.reduce_sum(tf.constant([[1], [2]])),
        tf.shape(tf.zeros([2, 3])),
    ):
        assert made.dtype is tf.int32, made
    assert tf.constant([2**40]).dtype is tf.int64 and tf.constant(np.arange(2)).dtype is tf.int64
    assert tf.constant([1, 2.5]).dtype is tf.float32 and tf.Variable([1.0]).dtype is tf.float32
    assert run(tf.range(1, 7, 2)).tolist() == [1, 3, 5] and run(tf.range(0.0, 1.0, 0.5)).tolist() == [0, 0.5]
