"""Parts of arrays and rows of them."""

import numpy as np
import pytest

import tandem as td
import tandem.v1 as tf
from tests.v1.runs import run


def test_pieces():
    a = np.arange(12).reshape(3, 4)
    x = tf.constant(a)
    assert [p.tolist() for p in run(tf.split(x, 2, 1))] == [a[:, :2].tolist(), a[:, 2:].tolist()]
    assert [p.shape for p in run(tf.split(x, [1, 3], axis=1))] == [(3, 1), (3, 3)]
    assert [p.tolist() for p in run(tf.unstack(x))] == a.tolist() and len(tf.unstack(x, axis=1)) == 4
    assert run(tf.slice(x, [1, 0], [2, -1])).tolist() == a[1:].tolist()
    assert run(tf.slice(x, [0, 1], [1, 2], name="part")).tolist() == [[1, 2]]
    assert run(tf.pad(x, [[0, 1], [2, 0]])).tolist() == np.pad(a, [[0, 1], [2, 0]]).tolist()
    assert run(tf.pad(x, [[1, 1], [0, 0]], "REFLECT")).tolist() == np.pad(a, [[1, 1], [0, 0]], "reflect").tolist()
    assert run(tf.pad(x, [[1, 0], [0, 0]], "SYMMETRIC")).tolist() == np.pad(a, [[1, 0], [0, 0]], "symmetric").tolist()
    assert run(tf.pad(x, [[1, 0], [0, 0]], constant_values=9))[0].tolist() == [9] * 4
    halves = tf.split(x, 2, 1, name="halves")
    assert [h.name for h in halves] == ["halves:0", "halves:1"]
    with pytest.raises(td.ShapeError, match="divisible"):
        tf.split(x, 3, 1)
    with pytest.raises(td.ShapeError, match="unstacked into 2"):
        tf.unstack(x, 2)
    with pytest.raises(td.ValueRangeError, match="not within axis 1"):
        tf.slice(x, [0, 3], [1, 2])
    with pytest.raises(td.ShapeError, match="one for each axis"):
        tf.slice(x, [0], [1])


def test_parts():
    x, to = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.int32, [None])
    fed = {x: [[1, 2], [3, 4], [5, 6]], to: [1, 0, 1]}
    parts = tf.dynamic_partition(x, to, 2)
    assert [p.tolist() for p in run(parts, fed)] == [[[3, 4]], [[1, 2], [5, 6]]]
    where = tf.dynamic_partition(tf.range(tf.shape(x)[0]), to, 2)
    assert run(tf.dynamic_stitch(where, [parts[0] * 10.0, parts[1]]), fed).tolist() == [[1, 2], [30, 40], [5, 6]]


def test_rows():
    x = tf.placeholder(tf.float32, [None, 2])
    fed = {x: [[1, 2], [3, 4], [5, 6]]}
    assert run(tf.map_fn(lambda r: r * r, x, name="squares"), fed).tolist() == [[1, 4], [9, 16], [25, 36]]
    assert run("squares:0", fed).tolist() == [[1, 4], [9, 16], [25, 36]]
    both = tf.map_fn(lambda p: p[0] + p[1], (x, x), dtype=tf.float32)
    assert run(both, fed).tolist() == [[2, 4], [6, 8], [10, 12]]
    assert run(tf.map_fn(lambda i: i * 2, [1, 2])).tolist() == [2, 4]
    with pytest.raises(td.DTypeError, match="int32"):
        tf.map_fn(lambda r: r, x, dtype=tf.int32)
    assert run(tf.scan(lambda a, r: a + r, x), fed).tolist() == [[1, 2], [4, 6], [9, 12]]
    assert run(tf.scan(lambda a, r: a + r, x, reverse=True), fed).tolist() == [[9, 12], [8, 10], [5, 6]]
    totals = tf.scan(lambda a, r: a + tf.reduce_sum(r), x, initializer=tf.constant(10.0))
    assert run(totals, fed).tolist() == [13, 20, 31]
    (slope,) = tf.gradients(tf.reduce_sum(totals), [x])
    assert run(slope, fed).tolist() == [[3, 3], [2, 2], [1, 1]]
