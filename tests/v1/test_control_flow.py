"""Branches and loops of the classic API."""

import pytest

import tandem as td
import tandem.v1 as tf
from tests.v1.runs import run


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


def test_loops_with_invariants_and_a_maximum():
    n = tf.placeholder(tf.int32, [])
    grown = tf.while_loop(
        lambda i, x: i < n,
        lambda i, x: (i + 1, tf.concat([x, [1.0]], 0)),
        [0, tf.zeros([1])],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
    )
    assert run(grown[1], {n: 3}).tolist() == [0, 1, 1, 1] and grown[1].get_shape() == (None,)
    with pytest.raises(td.ShapeError, match="shape_invariants are"):
        tf.while_loop(lambda i: i < n, lambda i: i + 1, [0], shape_invariants=[[None]])
    same = tf.while_loop(lambda x: tf.reduce_sum(x) < 10, lambda x: x * 2, [tf.ones([2])], shape_invariants=[[2]])
    assert run(same).tolist() == [8, 8]
    v = tf.Variable(0.0)
    counted = tf.while_loop(
        lambda i: i < n, lambda i: i + tf.to_int32(tf.assign_add(v, 1.0) * 0 + 1), [0], maximum_iterations=2
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(counted, {n: 5}) == 2 and session.run(v) == 2
