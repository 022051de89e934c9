"""Arithmetic of the classic API."""

import numpy as np
import pytest

import tandem.v1 as tf
from tests.v1.runs import run


def test_division_of_integers():
    seven = tf.constant(7)
    assert run(tf.div(seven, 2)) == 3 and run(tf.div(seven, 2)).dtype == np.int32
    assert run(tf.div(tf.constant([-7]), tf.constant([2]))).tolist() == [-4]
    assert run(tf.div([7, 8], 2)).tolist() == [3, 4]
    assert run(tf.div(tf.constant(7.0), 2)) == 3.5 and run(tf.div(7, 2.0)) == 3.5
    assert run(tf.divide(seven, 2)) == 3.5


def test_more_arithmetic():
    x, y = tf.constant([7, -7]), tf.constant([3, 3])
    assert run([tf.mod(x, y), tf.floordiv(x, y), tf.squared_difference(x, y)])[0].tolist() == [1, 2]
    assert run(tf.floordiv(x, y)).tolist() == [2, -3] and run(tf.squared_difference(x, y)).tolist() == [16, 100]
    assert run(tf.to_float(x)).dtype == np.float32 and run(tf.to_int32(tf.constant([2.7]))).tolist() == [2]
    assert run(tf.reduce_sum(input_tensor=[[1.0, 2.0]], axis=1)).tolist() == [3]
    assert run(tf.reduce_mean(tf.constant([1, 2]))) == 1 and run(tf.reduce_mean([1.0, 2.0], 0, True)).tolist() == [1.5]
    assert run(tf.nn.leaky_relu([-1.0])).tolist() == pytest.approx([-0.2])
    assert run(tf.cumsum(x)).tolist() == [7, 0] and tf.cumsum(x).dtype is tf.int32
    assert run(tf.argmax(tf.constant([[1, 5]]), 1, output_type=tf.int32)).dtype == np.int32
    assert run(tf.one_hot([0, 2], 3, on_value=5.0, off_value=-1.0)).tolist() == [[5, -1, -1], [-1, -1, 5]]
    assert run(tf.one_hot([1], 2, on_value=1, off_value=0)).dtype == np.int32
    assert run(tf.one_hot([0, 2], 3, axis=0)).tolist() == [[1, 0], [0, 0], [0, 1]]
