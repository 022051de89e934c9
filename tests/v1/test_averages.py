"""Moving averages of variables."""

import tandem.v1 as tf


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
