"""Classic names: averages, assertions, latest_checkpoint; and what is left out says how to write it."""

import numpy as np
import pytest

import tandem.v1 as tf


@pytest.fixture(autouse=True)
def fresh_graph():
    tf.reset_default_graph()


def test_moving_averages_follow_variables():
    x = tf.Variable(tf.constant(1.0), name="x")
    average = tf.train.ExponentialMovingAverage(0.5)
    move = average.apply([x])
    change = x.assign(3.0)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(average.average(x)) == 1.0
        session.run(change)
        session.run(move)
        assert session.run(average.average(x)) == 2.0
    assert average.average_name(x) == "x/ExponentialMovingAverage"


def test_assertions_fail_with_their_data():
    x = tf.placeholder(tf.float32, [2])
    with tf.control_dependencies([tf.Assert(tf.reduce_all(x > 0), [x])]):
        y = tf.identity(x * 2)
    with tf.Session() as session:
        assert session.run(y, {x: [1, 2]}).tolist() == [2, 4]
        with pytest.raises(tf.errors.InvalidArgumentError, match="does not hold; data:"):
            session.run(y, {x: [-1, 2]})


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


@pytest.mark.parametrize(
    ("space", "name", "advice"),
    [
        (tf, "TensorArray", "tf.scan or tf.map_fn"),
        (tf, "layers", "td.nn modules"),
        (tf, "summary", "SummaryWriter"),
        (tf.nn, "dynamic_rnn", "tf.scan"),
        (tf.nn, "rnn_cell", "td.nn.LSTM"),
        (tf.train, "shuffle_batch", "RandomShuffleQueue"),
        (tf.train, "string_input_producer", "DataLoader"),
    ],
)
def test_what_is_left_out_says_how_to_write_it(space, name, advice):
    with pytest.raises(AttributeError, match=advice):
        getattr(space, name)


def test_partial_runs_are_refused_with_the_way_to_write_them():
    with tf.Session() as session, pytest.raises(AttributeError, match="one run that fetches"):
        session.partial_run_setup([], [])
