"""What other processes do in the tests."""

import os
import signal

import tandem as td


def add_one(queue, results):
    while (t := queue.get()) is not None:
        with td.no_grad():
            t += 1
        results.put(os.getpid())


def fill(module, value):
    with td.no_grad():
        for p in module.parameters():
            p.fill_(value)


def send_many(queue):
    for i in range(5):
        queue.put({"i": i, "x": td.full((3,), float(i)), "half": td.ones(2, dtype=td.bfloat16), "empty": td.zeros(0)})
    queue.join()


def die(t):
    t[0] = 5.0
    os.kill(os.getpid(), signal.SIGKILL)
