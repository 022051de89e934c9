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
