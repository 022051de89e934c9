"""TensorFlow's distributed session for cluster.py: two tasks, one in a process of its own; rounds are asked for on standard input.

python cluster_tensorflow.py server PORT PORT      a parameter server
python cluster_tensorflow.py client PORT PORT OPS inside|outside
    inside: the client is the worker's process; outside: the worker is a process too, and the client a third one
"""

import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


DENSE = 8 << 20  # numbers of a parameter that is pulled and updated whole


def config():
    return tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)


def server(ports, job):
    spec = tf.train.ClusterSpec({"ps": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{ports[1]}"]})
    return tf.train.Server(spec, job_name=job, task_index=0, config=config())


def chain(x, a, b, count):
    for k in range(count):
        x = x * a if k % 2 else x + b
    return x


def client(ports, ops, where):
    target = server(ports, "worker").target if where == "inside" else f"grpc://127.0.0.1:{ports[1]}"
    with tf.device("/job:ps/task:0"):
        a, b, x = tf.Variable(0.999, name="a"), tf.Variable(0.001, name="b"), tf.Variable(1.0, name="x")
        first = chain(x, a, b, ops // 2)
    with tf.device("/job:worker/task:0"):
        c, d = tf.Variable(0.999, name="c"), tf.Variable(0.001, name="d")
        second = chain(first, c, d, ops // 2)
        null = (x + d).op
    with tf.device("/job:ps/task:0"):
        table = tf.Variable(tf.zeros([DENSE], tf.float32), name="table")
    with tf.device("/job:worker/task:0"):
        gradient = table * 0.5 + d  # the whole of it is pulled, and as much pushed
    with tf.device("/job:ps/task:0"):
        dense = table.assign_sub(gradient, read_value=False)
        dense = getattr(dense, "op", dense)
    session = tf.Session(target)
    session.run(tf.global_variables_initializer())
    steps = {name: session.make_callable(f) for name, f in (("null", null), ("chain", second), ("dense", dense))}
    print("result", float(session.run(second)), flush=True)
    for line in sys.stdin:
        name, count = line.split()
        run, best = steps[name], float("inf")
        for _ in range(int(count)):
            began = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - began)
        print(best, flush=True)


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    if role == "client":
        client(rest[:2], int(rest[2]), rest[3])
    else:
        print("ready", flush=True) if server(rest[:2], role) else None
        sys.stdin.read()
