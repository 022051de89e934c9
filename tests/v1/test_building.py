"""Placeholders of the classic API."""

import numpy as np
import pytest

import tandem as td
import tandem.v1 as tf
from tests.v1.runs import run


def test_placeholders():
    with pytest.raises(td.ShapeError, match=r"number of axes is unknown[\s\S]*\[None, 10\]"):
        tf.placeholder(tf.float32)
    x = tf.placeholder(tf.float32, [None, 3])
    assert x.get_shape().as_list() == [None, 3] and x.get_shape() == (None, 3)
    assert x.get_shape()[1].value == 3 and x.get_shape()[0].value is None
    assert [d.value for d in x.get_shape()] == [None, 3] and x.get_shape()[1:].as_list() == [3]
    assert x.get_shape().ndims == 2 and x.get_shape().num_elements() is None
    assert tf.TensorShape([2, 3]).num_elements() == 6 and repr(x.get_shape()) == "(None, 3)"
    assert tf.placeholder(tf.float32, x.get_shape()).get_shape() == (None, 3)


def test_a_placeholder_with_a_default():
    rate = tf.placeholder_with_default(0.5, [], name="rate")
    rows = tf.placeholder_with_default(np.ones((2, 3), "f"), [None, 3])
    assert rate.name == "rate:0" and rows.get_shape() == (None, 3)
    total = tf.reduce_sum(rows, 0) * rate
    assert run(total).tolist() == [1, 1, 1]
    assert run(total, {rate: 1.0, rows: np.ones((5, 3))}).tolist() == [5, 5, 5]
    assert run(tf.shape(rows)[0]) == 2 and run(tf.shape(rows)[0], {rows: np.ones((5, 3))}) == 5
    with pytest.raises(td.ShapeError, match="they must fit"):
        tf.placeholder_with_default([1.0], [2])


def test_assertions_fail_with_their_data():
    x = tf.placeholder(tf.float32, [2])
    with tf.control_dependencies([tf.Assert(tf.reduce_all(x > 0), [x])]):
        y = tf.identity(x * 2)
    with tf.Session() as session:
        assert session.run(y, {x: [1, 2]}).tolist() == [2, 4]
        with pytest.raises(tf.errors.InvalidArgumentError, match="does not hold; data:"):
            session.run(y, {x: [-1, 2]})
