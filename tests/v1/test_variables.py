"""Variables by name, and collections of them."""

import numpy as np
import pytest

import tandem as td
import tandem.v1 as tf


def test_variables_by_name(graph):
    with tf.variable_scope("layer") as scope:
        w = tf.get_variable("w", [3, 2])
        b = tf.get_variable("b", [2], initializer=tf.zeros_initializer())
        y = tf.matmul(tf.ones([1, 3]), w, name="y")
    assert (w.name, b.name, y.name) == ("layer/w:0", "layer/b:0", "layer/y:0")
    with tf.variable_scope("layer", reuse=True):
        assert tf.get_variable("w", [3, 2]) is w
        with pytest.raises(td.ValueRangeError, match="no variable 'layer/c'"):
            tf.get_variable("c", [1])
        with pytest.raises(td.ShapeError, match=r"'layer/w' is \(3, 2\)"):
            tf.get_variable("w", [2, 2])
        with pytest.raises(td.DTypeError, match="float32"):
            tf.get_variable("w", [3, 2], tf.float64)
    with tf.variable_scope(scope), pytest.raises(td.ValueRangeError, match="there is a variable 'layer/w' already"):
        tf.get_variable("w", [3, 2])
    with tf.variable_scope("outer"):
        with tf.variable_scope("inner", reuse=tf.AUTO_REUSE):
            twice = [tf.get_variable("v", initializer=[1, 2]) for _ in range(2)]
        with tf.variable_scope(scope):
            tf.get_variable_scope().reuse_variables()
            assert tf.get_variable("b") is b
    assert twice[0] is twice[1] and twice[0].name == "outer/inner/v:0" and twice[0].dtype is tf.int32
    names = []
    for _ in range(2):
        with tf.variable_scope(None, "block"):
            names.append(tf.get_variable("v", [1]).name)
    assert names == ["block/v:0", "block_1/v:0"]
    with pytest.raises(td.ShapeError, match="neither a shape nor"):
        tf.get_variable("nothing")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        limit = (6 / 5) ** 0.5
        assert np.abs(w.eval()).max() <= limit and w.eval().any() and not b.eval().any()


def test_variables_and_loops():
    x = tf.placeholder(tf.float32, [])
    w = tf.get_variable("w", [], initializer=tf.constant_initializer(2.0))
    with pytest.raises(td.UnsupportedError, match="inside a loop or branch"):
        tf.cond(x > 0, lambda: tf.get_variable("v", []) + 0, lambda: x)

    def body(y):
        with tf.variable_scope(tf.get_variable_scope(), reuse=True):
            return y * tf.get_variable("w")

    doubled = tf.while_loop(lambda y: y < 10, body, [x])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(doubled, {x: 3.0}) == 12 and tf.global_variables() == [w]


def test_collections():
    with tf.variable_scope("a", initializer=tf.constant_initializer(2.0), regularizer=tf.nn.l2_loss):
        a = tf.get_variable("w", [2])
    b = tf.Variable(1.0, name="b", trainable=False)
    local = tf.Variable(5.0, name="seen", collections=[tf.GraphKeys.LOCAL_VARIABLES])
    assert tf.global_variables() == tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES) == [a, b]
    assert tf.trainable_variables() == [a] == tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope="a")
    assert tf.trainable_variables("b") == [] and tf.local_variables() == [local]
    (loss,) = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    tf.add_to_collection("mine", loss)
    assert tf.get_collection("mine") == [loss] and tf.get_collection("other") == []
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        assert session.run([loss, local]) == [4, 5]


def test_assign_and_its_shape():
    v = tf.Variable([1.0, 2.0])
    same = tf.assign(v, [3.0, 4.0], validate_shape=False)
    with pytest.raises(td.UnsupportedError, match="keeps its shape"):
        tf.assign(v, [1.0], validate_shape=False)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(same).tolist() == [3, 4]
