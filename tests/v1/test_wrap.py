"""Names and keywords that every classic function takes."""

import numpy as np
import pytest

import tandem as td
import tandem.v1 as tf
from tests.v1.runs import run


def test_names_of_operators(graph):
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    w = tf.Variable(tf.ones([2, 3]))
    logits = tf.matmul(x, w, name="logits")
    assert logits.name == "logits:0" and tf.matmul(x, w, name="logits").name == "logits_1:0"
    with tf.name_scope("loss"):
        assert tf.reduce_mean(logits, name="mean").name == "loss/mean:0"
        assert tf.nn.relu(logits, name="active").name == "loss/active:0"
    assert tf.add(x, 1.0, "sum").name == "sum:0" and tf.nn.relu(x, "active").name == "active:0"
    assert tf.constant(1.0, name="one").name == "one:0"
    assert tf.random_uniform([2], -1, 1, name="drawn").name == "drawn:0"
    assert tf.assign(w, tf.zeros([2, 3]), name="clear").name == "clear:0"
    (slope,) = tf.gradients(logits, [x], name="slope")
    assert slope.name == "slope:0"
    assert tf.global_variables_initializer("start").name == "start"
    session = tf.Session()
    session.run("start")
    assert session.run("logits:0", {"x:0": [[1, 2]]}).tolist() == [[3, 3, 3]]
    assert session.run(["loss/mean:0", "slope:0"], {x: [[1, 2]]})[0] == 3
    session.run("clear")
    assert not session.run(w).any()
    # What was there already keeps its name, and so do the parts of what has several.
    assert [tf.convert_to_tensor(x, name="same").name for _ in range(2)] == ["same:0", "same_1:0"] and x.name == "x:0"
    mean, variance = tf.nn.moments(x, [0], name="moments")
    assert mean.name.startswith("moments/") and variance.name.startswith("moments/")
    assert len(graph._by_name) == len(graph.nodes) and all(graph.find(n.name) is n for n in graph.nodes)


def test_names_of_the_graph(graph):
    x = tf.placeholder(tf.float32, [], name="x")
    y = tf.multiply(x, 2.0, name="y")
    assert graph.get_tensor_by_name("y:0") is y and graph.get_operation_by_name("y") is y.op
    assert [op.name for op in graph.get_operations()] == ["x", "y"]
    for find, name in (
        (graph.get_tensor_by_name, "y"),
        (graph.get_operation_by_name, "y:0"),
        (graph.find, "z"),
    ):
        with pytest.raises(td.ValueRangeError):
            find(name)
    with pytest.raises(td.IndexRangeError):
        graph.find("y:1")
    session = tf.Session(config=tf.ConfigProto(allow_soft_placement=True, gpu_options=tf.GPUOptions(allow_growth=True)))
    call = session.make_callable([y, x], feed_list=[x])
    assert call(3.0) == [6, 3]
    with pytest.raises(td.ValueRangeError, match="0 values for 1"):
        call()


def test_classic_keywords():
    x = tf.constant(np.ones((1, 2, 2, 1), "f"))
    kept = tf.nn.conv2d(input=x, filter=tf.ones([1, 1, 1, 1]), strides=[1, 1, 1, 1], padding="VALID", name="kept")
    pooled = tf.nn.max_pool(value=tf.nn.relu(features=kept), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
    added = tf.nn.bias_add(value=tf.reshape(tensor=pooled, shape=[1, 1]), bias=tf.zeros([1]))
    assert run(added).tolist() == [[1]] and run("kept:0").shape == (1, 2, 2, 1)
    first = tf.py_func(
        func=lambda a: a[:1], inp=[tf.constant([5.0, 6.0])], Tout=tf.float32, stateful=False, shape=(1,), name="first"
    )
    assert run(first).tolist() == [5] and first.name == "first:0"
    with tf.control_dependencies([tf.no_op()]):
        assert run(tf.identity(tf.Print(first, [first], message=None), "again")).tolist() == [5]
    assert run("again:0").tolist() == [5]
