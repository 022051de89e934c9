"""Values and gradients cut off."""

import numpy as np

import tandem.v1 as tf
from tests.v1.runs import run


def test_clipping():
    a, b = np.array([3.0, 0.0], "f"), np.array([[4.0]], "f")
    assert run(tf.global_norm([tf.constant(a), None, tf.constant(b)])) == 5
    np.testing.assert_allclose(run(tf.clip_by_norm(tf.constant(a), 1.5)), [1.5, 0], rtol=1e-6)
    np.testing.assert_allclose(run(tf.clip_by_norm(tf.constant(a), 5.0)), a)
    (x, none, y), norm = tf.clip_by_global_norm([tf.constant(a), None, tf.constant(b)], 2.5)
    assert none is None and run(norm) == 5
    np.testing.assert_allclose(run(x), a / 2, rtol=1e-6)
    np.testing.assert_allclose(run(y), b / 2, rtol=1e-6)
    zero, _ = tf.clip_by_global_norm([tf.zeros([2])], 1.0)
    assert run(zero[0]).tolist() == [0, 0]
