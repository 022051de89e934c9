"""SyncReplicasOptimizer: steps of several replicas through queues on a cluster, with a backup replica."""

import threading

import numpy as np
import pytest

import tandem as td
import tandem.v1 as tf
from tandem.distributed import Cluster


def data(step, worker):
    rng = np.random.default_rng(10 * step + worker)
    x = rng.standard_normal((8, 3)).astype(np.float32)
    return x, x @ np.array([[1.0], [-2.0], [0.5]], dtype=np.float32)


def replica(cluster, worker, needed, total):
    """A graph as each replica builds it."""
    with tf.Graph().as_default() as graph:
        with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{worker}")):
            x = tf.placeholder(tf.float32, [None, 3], name="x")
            y = tf.placeholder(tf.float32, [None, 1], name="y")
            step = tf.Variable(0, name="global_step", trainable=False)
            w = tf.Variable(np.zeros((3, 1), dtype=np.float32), name="w")
            b = tf.Variable(np.zeros(1, dtype=np.float32), name="b")
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
            opt = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), needed, total)
            train = opt.minimize(loss, global_step=step)
            init = tf.global_variables_initializer()
    return graph, opt, (x, y, step, w, b, loss, train, init)


def expected(steps, workers):
    w, b = np.zeros((3, 1)), np.zeros(1)
    for step in range(steps):
        gw, gb = np.zeros_like(w), np.zeros_like(b)
        for k in workers:
            x, y = data(step, k)
            error = x @ w + b - y
            gw += 2 * x.T @ error / len(x) / len(workers)
            gb += 2 * error.mean(0) / len(workers)
        w, b = w - 0.1 * gw, b - 0.1 * gb
    return w, b


@pytest.mark.parametrize(("needed", "total"), [(2, 2), (2, 3)])
def test_steps_take_the_mean_of_the_first_replicas(needed, total):
    steps = 5
    with Cluster({"ps": 2, "worker": total}, engine="threads") as cluster:
        replicas = [replica(cluster, k, needed, total) for k in range(total)]
        sessions = [td.Session(graph, target=cluster) for graph, _, _ in replicas]
        _, opt, (*_, init) = replicas[0]
        sessions[0].run(init)
        coordinator = td.Coordinator()
        runner = opt.get_chief_queue_runner()
        runner.create_threads(sessions[0], coordinator, start=True)
        errors = []

        def work(k):
            _, own, (x, y, _, _, _, _, train, _) = replicas[k]
            try:
                sessions[k].run(own.local_step.initializer)
                sessions[k].run(own.local_step_init_op)
                while True:
                    now = int(sessions[k].run(own.local_step))
                    if now >= steps:
                        return
                    sessions[k].run(train, dict(zip((x, y), data(now, k), strict=True)))
            except BaseException as error:
                errors.append(error)

        threads = [
            threading.Thread(target=work, args=(k,)) for k in range(needed)
        ]  # the backup replica is slow to begin
        for t in threads:
            t.start()
        for t in threads:
            t.join(300)
        assert not errors and not any(t.is_alive() for t in threads)
        w, b = (sessions[0].run(v).numpy() for v in replicas[0][2][3:5])
        ew, eb = expected(steps, range(needed))
        np.testing.assert_allclose(w, ew, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(b, eb, rtol=1e-4, atol=1e-5)
        before = runner.dropped  # a replica may have taken the permit of one that was slow to take it, and pushed twice
        if total > needed:  # gradients of step 0 come late: dropped, and the replica goes on with the present step
            _, own, (x, y, _, _, _, _, train, _) = replicas[2]
            sessions[2].run(own.local_step.initializer)
            sessions[2].run(train, dict(zip((x, y), data(0, 2), strict=True)))
            assert int(sessions[2].run(own.local_step)) == steps
            assert runner.dropped == before + 1 and runner.applied == steps
            assert bool((sessions[0].run(replicas[0][2][3]).numpy() == w).all())


def test_bad_arguments():
    opt = tf.train.GradientDescentOptimizer(0.1)
    with pytest.raises(ValueError, match="between 1 and total_num_replicas=2"):
        tf.train.SyncReplicasOptimizer(opt, 3, 2)
    with tf.Graph().as_default():
        w = tf.Variable([1.0])
        with pytest.raises(ValueError, match="global_step"):
            tf.train.SyncReplicasOptimizer(opt, 1).minimize(tf.reduce_sum(w * w))
