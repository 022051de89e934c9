"""AlexNet divided over two devices as in 2012 (Krizhevsky, Sutskever, Hinton): half of the channels on each, which meet in the
third convolution and in the layers at the end.

    python examples/alexnet_two_devices.py

In 2012 a device had too little memory for the whole; here two tasks of a cluster stand for the devices. The graph says where each
half is by td.device, gradients are computed where values were, and what crosses is counted. Then the placer is asked where it would
put the same operators.
"""

import contextlib

import numpy as np

import tandem as td
from tandem.nn import functional as F


def build(devices, width: int, classes: int, batch: int, lr: float = 0.02):
    """The graph of a training step. devices: two names, or Nones."""
    rng = np.random.default_rng(0)

    def weights(name, *shape):
        scale = (2.0 / (shape[0] if len(shape) == 2 else np.prod(shape[1:]))) ** 0.5
        return td.Variable(td.tensor((rng.standard_normal(shape) * scale).astype(np.float32)), name=name)

    def on(k):
        return contextlib.nullcontext() if devices[k] is None else td.device(devices[k])

    halves = (0, 1)
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (batch, 3, 32, 32), name="x")
        y = td.placeholder(td.int64, (batch,), name="y")
        variables = []

        def layer(k, name, value, *shape, pool=False, padding=1):
            with on(k):
                w = weights(f"{name}_{k}", *shape)
                variables.append(w)
                value = td.relu(F.conv2d(value, w, padding=padding))
                return F.max_pool2d(value, 2) if pool else value

        towers = []
        for k in halves:  # they know nothing of each other
            value = layer(k, "conv1", x, width, 3, 5, 5, pool=True, padding=2)
            towers.append(layer(k, "conv2", value, 2 * width, width, 3, 3, pool=True))
        tops = []
        for k in halves:  # the third layer reads both
            with on(k):
                both = td.cat(towers, 1)
            value = layer(k, "conv3", both, 2 * width, 4 * width, 3, 3)
            tops.append(layer(k, "conv4", value, 2 * width, 2 * width, 3, 3, pool=True))
        ends = []
        for k in halves:
            with on(k):
                both = td.cat(tops, 1).reshape(batch, 4 * width * 16)
                w = weights(f"full_{k}", 4 * width * 16, 8 * width)
                variables.append(w)
                ends.append(td.relu(both @ w))
        with on(0):
            out = weights("out", 16 * width, classes)
            variables.append(out)
            loss = F.cross_entropy(td.cat(ends, 1) @ out, y)
        changes = [lr * g for g in td.gradients(loss, variables)]  # all of them before anything is written
        step = td.session.group(*(v.assign_sub(g) for v, g in zip(variables, changes, strict=True)))
        init = td.global_variables_initializer()
    return graph, x, y, loss, step, init


def images(batch: int, classes: int, seed: int = 0):
    """Pictures of bars whose direction is the class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, batch)
    at = np.arange(32) - 16
    angle = y[:, None, None] * np.pi / classes
    wave = np.sin((np.cos(angle) * at[None, :, None] + np.sin(angle) * at[None, None, :]) * 0.8)
    x = wave[:, None].repeat(3, 1) + 0.3 * rng.standard_normal((batch, 3, 32, 32))
    return x.astype(np.float32), y


def main(width: int = 16, classes: int = 4, batch: int = 32, steps: int = 15, engine: str = "processes", show=print):
    x_data, y_data = images(batch, classes)

    def train(cluster, devices, steps):
        graph, x, y, loss, step, init = build(devices, width, classes, batch)
        session = td.Session(graph) if cluster is None else td.Session(graph, target=cluster)
        session.run(init)
        return [session.run([loss, step], {x: x_data, y: y_data})[0].item() for _ in range(steps)]

    with td.distributed.Cluster({"worker": 2}, engine=engine) as cluster:
        two = train(cluster, cluster.tasks, steps)
        crossed = sum(d["counts"]["bytes_sent"] for d in cluster.describe().values()) / steps
    one = train(None, [None, None], steps)
    show(f"two devices: loss {two[0]:.3f} to {two[-1]:.3f}; one device: {one[0]:.3f} to {one[-1]:.3f}")
    show(f"{crossed / 1e3:.0f} KB cross in a step")
    graph, _, _, loss, *_ = build([None, None], width, classes, batch)
    plan = td.distributed.place(graph, ["/job:worker/task:0", "/job:worker/task:1"], fetches=[loss], measure=True)
    show("the placer, for the forward pass:\n" + plan.explain())
    return two, one, crossed, plan


if __name__ == "__main__":
    main()
