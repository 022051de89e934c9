"""Random numbers of the classic API."""

import numpy as np
import pytest

import tandem as td
import tandem.v1 as tf
from tests.v1.runs import run


def test_operators_with_a_seed():
    drawn, same = tf.random_normal([2], seed=42), tf.random_normal([2], seed=42)
    other, plain = tf.truncated_normal([2], seed=1), tf.random_uniform([3])
    first = tf.Session()
    values = [first.run(drawn).tolist() for _ in range(3)]
    assert len({tuple(v) for v in values}) == 3
    second = tf.Session()
    second.run([plain, other])
    assert [second.run([drawn, plain])[0].tolist() for _ in range(3)] == values
    assert run([drawn, same])[1].tolist() == values[0]
    table = tf.Variable(tf.random_uniform([2], seed=3))
    init = tf.global_variables_initializer()
    tables = []
    for _ in range(2):
        with tf.Session() as session:
            session.run(init)
            tables.append(table.eval().tolist())
    assert tables[0] == tables[1]


def test_random_integers():
    drawn = run(tf.random_uniform([1000], 2, 5, dtype=tf.int32, seed=1))
    assert drawn.dtype == np.int32 and set(drawn) == {2, 3, 4}
    assert set(run(tf.random_uniform([100], maxval=2, dtype=tf.int64))) == {0, 1}
    with pytest.raises(td.ValueRangeError, match="maxval"):
        tf.random_uniform([2], dtype=tf.int32)
