"""Initialisers."""

import pytest

import tandem.v1 as tf


@pytest.mark.parametrize(
    "initializer",
    [
        tf.ones_initializer(),
        tf.random_normal_initializer(seed=1),
        tf.truncated_normal_initializer(stddev=0.1, seed=1),
        tf.random_uniform_initializer(-1, 1, seed=1),
        tf.glorot_uniform_initializer(seed=1),
        tf.constant_initializer([1, 2, 3, 4]),
        tf.zeros_initializer,
    ],
)
def test_initialisers(initializer):
    made = tf.get_variable("v", [2, 2], initializer=initializer)
    values = []
    for _ in range(2):
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            values.append(made.eval().tolist())
    assert values[0] == values[1] and made.get_shape() == (2, 2) and made.dtype is tf.float32
