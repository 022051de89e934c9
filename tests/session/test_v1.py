"""The classic names: what programs written for them take for granted."""

import numpy as np
import pytest

import tandem as td
import tandem.v1 as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as made:
        yield made


def run(fetches, feed_dict=None):
    return tf.Session(graph=tf.get_default_graph()).run(fetches, feed_dict)


def test_a_constant_with_a_shape():
    assert run(tf.constant([1, 2, 3, 4, 5, 6], shape=[2, 3])).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert run(tf.constant([1, 2], shape=[2, 2])).tolist() == [[1, 2], [2, 2]]
    assert run(tf.constant(2.5, shape=[3])).tolist() == [2.5, 2.5, 2.5]
    assert run(tf.constant(np.arange(4.0), shape=(2, 2))).dtype == np.float64
    assert tf.constant([0.5], shape=[2]).dtype is tf.float32
    assert run(tf.constant([], shape=[0, 3])).shape == (0, 3)
    with pytest.raises(td.ShapeError, match="3 values for shape"):
        tf.constant([1, 2, 3], shape=[2])


def test_division_of_integers():
    seven = tf.constant(7)
    assert run(tf.div(seven, 2)) == 3 and run(tf.div(seven, 2)).dtype == np.int32
    assert run(tf.div(tf.constant([-7]), tf.constant([2]))).tolist() == [-4]
    assert run(tf.div([7, 8], 2)).tolist() == [3, 4]
    assert run(tf.div(tf.constant(7.0), 2)) == 3.5 and run(tf.div(7, 2.0)) == 3.5
    assert run(tf.divide(seven, 2)) == 3.5


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
    assert tf.squeeze(x[0], name="same").name == "same:0" and x.name == "x:0"
    mean, variance = tf.nn.moments(x, [0], name="moments")
    assert mean.name.startswith("moments/") and variance.name.startswith("moments/")
    assert len(graph._by_name) == len(graph.nodes) and all(graph.find(n.name) is n for n in graph.nodes)


def test_names_of_control_flow():
    x = tf.placeholder(tf.float32, (), name="x")
    v = tf.Variable(0.0, name="v")
    assert tf.cond(x > 0, lambda: x, lambda: -x, name="size").name == "size:0"
    assert tf.cond(x > 0, lambda: tf.assign(v, x), lambda: v.value(), name="kept").name == "kept:0"
    assert tf.while_loop(lambda y: y < 10, lambda y: y * 2, [x], name="doubled").name == "doubled:0"
    assert run(["size:0", "doubled:0"], {x: 3.0}) == [3, 12]


def test_a_named_operator_inside_a_loop():
    x = tf.placeholder(tf.float32, ())
    y = tf.while_loop(lambda y: y < 10, lambda y: tf.multiply(y, 2.0, name="double"), [x])
    assert run(y, {x: 3.0}) == 12


def test_branches_and_loops_that_print(capsys):
    x, n = tf.placeholder(tf.float32, ()), tf.placeholder(tf.int32, ())
    chosen = tf.cond(x > 1, lambda: tf.Print(x, [x], "large "), lambda: -x)
    counted = tf.while_loop(lambda i: i < n, lambda i: tf.Print(i, [i], "at ") + 1, [tf.constant(0)])
    assert run(chosen, {x: 3.0}) == 3 and capsys.readouterr().err == "large [3]\n"
    assert run(chosen, {x: 0.5}) == -0.5 and capsys.readouterr().err == ""
    assert run(counted, {n: 2}) == 2 and capsys.readouterr().err == "at [0]\nat [1]\n"
    with pytest.raises(td.UnsupportedError, match="cannot change variables, print"):
        td.cond(x > 1, lambda: td.Print(x, [x]), lambda: -x)


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
