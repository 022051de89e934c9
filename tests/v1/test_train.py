"""Savers and rates that fall."""

import numpy as np
import pytest

import tandem as td
import tandem.v1 as tf


def test_decay_of_the_learning_rate():
    step = tf.Variable(0, trainable=False, name="step")
    smooth = tf.train.exponential_decay(0.1, step, 10, 0.5, name="rate")
    stairs = tf.train.exponential_decay(0.1, step, 10, 0.5, staircase=True)
    w = tf.Variable(1.0)
    train = tf.train.GradientDescentOptimizer(stairs).minimize(w, global_step=step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        step.load(15, session)
        assert smooth.name == "rate:0"
        np.testing.assert_allclose(session.run([smooth, stairs]), [0.1 * 0.5**1.5, 0.05], rtol=1e-6)
        session.run(train)
        np.testing.assert_allclose(session.run(w), 0.95, rtol=1e-6)
        assert session.run(step) == 16


def test_a_saver_keeps_the_last_files(tmp_path):
    v, w = tf.Variable(1.0, name="v"), tf.Variable(2.0, name="w")
    step = tf.Variable(0, name="step")
    saver = tf.train.Saver(var_list=[v], max_to_keep=2)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for k in range(4):
            step.load(k, session)
            path = saver.save(session, str(tmp_path / "model"), global_step=step)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint", "model-2", "model-3"] and path.endswith(
            "model-3"
        )
        assert saver.last_checkpoints == [str(tmp_path / "model-2"), path]
        v.load(9.0, session)
        w.load(9.0, session)
        saver.restore(session, path)
        assert session.run([v, w]) == [1, 9]
    with pytest.raises(td.UnsupportedError, match="sharded"):
        tf.train.Saver(sharded=True)


def test_latest_checkpoint(tmp_path):
    assert tf.train.latest_checkpoint(tmp_path) is None
    v = tf.Variable(np.float32(4))
    saver = tf.train.Saver()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        paths = [saver.save(session, str(tmp_path / "model"), global_step=i) for i in (1, 2)]
    assert tf.train.latest_checkpoint(tmp_path) == paths[-1]
    with tf.Session() as session:
        saver.restore(session, tf.train.latest_checkpoint(tmp_path))
        assert session.run(v) == 4
