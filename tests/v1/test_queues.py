"""A classic program with queues, as it stands but for the module name."""

import numpy as np

import tandem.v1 as tf


def test_a_classic_input_pipeline():
    graph = tf.Graph()
    with graph.as_default():
        filled = tf.FIFOQueue(20, [tf.float32, tf.int32], shapes=[(2,), ()], name="examples")
        counter = tf.Variable(0, name="counter", trainable=False, dtype=tf.int32)
        step = tf.assign_add(counter, 1)
        row = tf.stack([tf.cast(step, tf.float32), tf.ones(())])
        runner = tf.train.QueueRunner(filled, [filled.enqueue([row, step])] * 2)
        tf.train.add_queue_runner(runner)
        x, label = filled.dequeue_many(5)
        table = tf.Variable(tf.zeros([4]), name="table")
        counted = tf.scatter_add(table, label % 4, tf.ones([5]))
        init = tf.global_variables_initializer()
    with tf.Session(graph=graph) as session:
        session.run(init)
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess=session, coord=coord)
        seen = []
        try:
            for _ in range(6):
                batch, labels, _ = session.run([x, label, counted])
                assert batch.shape == (5, 2) and (batch[:, 0] == labels).all()
                seen += labels.tolist()
        except tf.errors.OutOfRangeError:
            raise AssertionError("the queue ended") from None
        finally:
            coord.request_stop()
            coord.join(threads)
        assert len(set(seen)) == 30
        assert 30 == session.run(table).sum()
        np.testing.assert_array_equal(session.run(table), np.bincount(np.array(seen) % 4, minlength=4))


def test_the_primitives_under_their_module():
    assert tf.control_flow_ops.switch and tf.control_flow_ops.merge and tf.control_flow_ops.loop_cond


def test_classic_control_flow():
    with tf.Graph().as_default() as graph:
        x, n = tf.placeholder(tf.float32, ()), tf.placeholder(tf.int32, ())
        v = tf.Variable(0.0, name="v", trainable=False)
        chosen = tf.cond(x > 1, lambda: x * x, lambda: -x)
        (slope,) = tf.gradients(chosen, [x])
        counted = tf.cond(x > 1, lambda: tf.assign_add(v, 1.0), lambda: v.value())
        i, y = tf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 2), [tf.constant(0), x])
        total = tf.while_loop(
            lambda i: i < n, lambda i: i + tf.cast(tf.assign_add(v, 1.0) * 0 + 1, tf.int32), [tf.constant(0)]
        )
        init = tf.global_variables_initializer()
    with tf.Session(graph=graph) as session:
        session.run(init)
        assert (9, 6) == tuple(session.run([chosen, slope], {x: 3.0}))
        assert (-0.5, -1) == tuple(session.run([chosen, slope], {x: 0.5}))
        assert 1 == session.run(counted, {x: 3.0}) and 1 == session.run(counted, {x: 0.5})
        assert (4, 48) == tuple(session.run([i, y], {x: 3.0, n: 4}))
        assert 5 == session.run(total, {n: 5}) and 6 == session.run(v)
        with graph.as_default():
            waiting = tf.FIFOQueue(1, tf.float32, ()).dequeue()
        try:
            session.run(waiting, options=tf.RunOptions(timeout_in_ms=20))
            raise AssertionError("nothing to dequeue")
        except tf.errors.DeadlineExceededError:
            pass
