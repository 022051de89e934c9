"""The classic two-layer program of graphs and sessions, on a cluster: parameters on two servers, two workers that train at once."""

import sys
import threading

import numpy as np

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("this example needs the digits of scikit-learn: pip install scikit-learn")

import tandem as td
import tandem.v1 as tf

BATCH, TEST = 128, 256


def digits():
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    pixels = (images[order] / 16).astype("float32")
    classes = np.eye(10, dtype="float32")[labels[order]]
    return (pixels[:-TEST], classes[:-TEST]), (pixels[-TEST:], classes[-TEST:])


def build(cluster):
    """The slides' network, once for each worker, on shared variables. Gives (x, y, train_op) of each worker, and the guesses."""
    workers = cluster.spec.num_tasks("worker")
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")):
        W_1 = tf.Variable(tf.random_uniform([64, 100], -0.2, 0.2), name="W_1")
        b_1 = tf.Variable(tf.zeros([100]), name="b_1")
        W_2 = tf.Variable(tf.random_uniform([100, 10], -0.2, 0.2), name="W_2")
        b_2 = tf.Variable(tf.zeros([10]), name="b_2")
        steps = tf.Variable(0, trainable=False, name="steps")
    replicas, x, layer_2 = [], None, None
    for k in range(workers):
        with tf.device(f"/job:worker/task:{k}"):
            x = tf.placeholder(tf.float32, [None, 64])
            y = tf.placeholder(tf.float32, [None, 10])
            layer_1 = tf.nn.relu(tf.matmul(x, W_1) + b_1)
            layer_2 = tf.matmul(layer_1, W_2) + b_2
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(layer_2, y))
            train_op = tf.train.GradientDescentOptimizer(0.2).minimize(loss, global_step=steps)
        replicas.append((x, y, train_op))
    return replicas, (x, layer_2), steps


def main(num_steps=400, engine="processes", show=print):
    train, test = digits()
    with td.distributed.Cluster({"ps": 2, "worker": 2}, engine=engine, threads=1) as cluster, tf.Graph().as_default():
        replicas, (x, guesses), steps = build(cluster)
        with tf.Session(cluster) as session:
            session.run(tf.global_variables_initializer())

            def work(k):
                x, y, train_op = replicas[k]
                generator = np.random.default_rng(k)
                for _ in range(num_steps // len(replicas)):
                    rows = generator.integers(0, len(train[0]), BATCH)
                    session.run(train_op, {x: train[0][rows], y: train[1][rows]})

            threads = [threading.Thread(target=work, args=(k,)) for k in range(len(replicas))]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            right = float((session.run(guesses, {x: test[0]}).argmax(1) == test[1].argmax(1)).mean())
            show(f"{right:.1%} of {TEST} digits after {session.run(steps)} steps of {len(replicas)} workers")
            for name, found in cluster.describe().items():
                show(
                    f"{name}: {', '.join(found['variables']) or 'no variables'}; {found['counts']['messages']} messages"
                )
    return right


if __name__ == "__main__":
    main()
