"""Loops wired from Switch and Merge, and queues, side by side with TensorFlow's graphs and FIFOQueue.

    python benchmarks/dataflow.py --tensorflow-python .venv-bench/bin/python

Each side runs in a process of its own, in turns; times are the best of all turns, and the ratio is ours to theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time

ITERATIONS = 100_000


def best(f, repeat: int) -> float:
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        f()
        times.append(time.perf_counter() - begin)
    return min(times)


def four_and_four(produce, consume, each: int):
    """Four threads that produce and four that consume, `each` times apiece."""

    def loop(f):
        for _ in range(each):
            f()

    threads = [threading.Thread(target=loop, args=(f,)) for f in [produce] * 4 + [consume] * 4]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def tandem_cases() -> dict:
    import tandem as td

    ops = td.graph_ops
    with td.Graph() as graph:
        n = td.placeholder(td.int32, ())
        bound = ops.enter(n, "loop", is_constant=True)
        i = ops.merge([ops.enter(td.tensor(0, dtype=td.int32), "loop")]).output
        out, body = ops.switch(i, ops.loop_cond(i < bound))
        ops.close_loop(i, body + 1)
        result = ops.exit(out)
        queue = td.FIFOQueue(1000, td.float32, ())
        enqueue, dequeue = queue.enqueue(td.tensor(1.0)), queue.dequeue()
    session = td.Session(graph)
    eager, one = td.FIFOQueue(1000, td.float32, ()), td.tensor(1.0)
    return {
        "loop": lambda: session.run(result, {n: ITERATIONS}),
        "queue, sessions": lambda: four_and_four(lambda: session.run(enqueue), lambda: session.run(dequeue), 500),
        "queue, eager": lambda: four_and_four(lambda: eager.enqueue(one), eager.dequeue, 2000),
    }


def tensorflow_cases() -> dict:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_control_flow_v2()
    graph = tf.Graph()
    with graph.as_default():
        n = v1.placeholder(tf.int32, ())
        result = v1.while_loop(lambda i: i < n, lambda i: i + 1, [tf.constant(0)])
        queue = tf.queue.FIFOQueue(1000, [tf.float32], [()])
        enqueue, dequeue = queue.enqueue(tf.constant(1.0)), queue.dequeue()
    session = v1.Session(graph=graph)
    eager, one = tf.queue.FIFOQueue(1000, [tf.float32], [()]), tf.constant(1.0)
    return {
        "loop": lambda: session.run(result, {n: ITERATIONS}),
        "queue, sessions": lambda: four_and_four(lambda: session.run(enqueue), lambda: session.run(dequeue), 500),
        "queue, eager": lambda: four_and_four(lambda: eager.enqueue(one), eager.dequeue, 2000),
    }


def worker(kind: str, repeat: int):
    cases = tandem_cases() if kind == "tandem" else tensorflow_cases()
    for f in cases.values():
        f()
    print(json.dumps({name: best(f, repeat) for name, f in cases.items()}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensorflow-python", help="an interpreter that has tensorflow-cpu")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--worker", choices=["tandem", "tensorflow"])
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.repeat)
        return
    sides = {"tandem": sys.executable}
    if options.tensorflow_python:
        sides["tensorflow"] = options.tensorflow_python
    times: dict[str, dict[str, float]] = {side: {} for side in sides}
    for _ in range(options.turns):
        for side, python in sides.items():
            command = [python, __file__, "--worker", side, "--repeat", str(options.repeat)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{side}: {done.stderr[-2000:]}")
            for name, seconds in json.loads(done.stdout.splitlines()[-1]).items():
                times[side][name] = min(seconds, times[side].get(name, seconds))
    bars = {"loop": "<= 1", "queue, sessions": "<= 0.5", "queue, eager": "<= 0.5"}
    print(f"{'case':18}{'tandem':>10}{'tensorflow':>12}{'ratio':>8}   bar")
    for name, ours in times["tandem"].items():
        theirs = times.get("tensorflow", {}).get(name)
        ratio = "" if theirs is None else f"{ours / theirs:.2f}"
        print(
            f"{name:18}{ours * 1e3:8.1f}ms{'' if theirs is None else f'{theirs * 1e3:.1f}ms':>12}{ratio:>8}   {bars[name]}"
        )


if __name__ == "__main__":
    main()
