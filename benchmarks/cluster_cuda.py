"""Parameters on servers of the host, compute on a CUDA device: what is copied, what of it overlaps with
compute, and whether training equals one process.

    python benchmarks/cluster_cuda.py [--width 2048] [--layers 8] [--batch 2048] [--steps 20] [--servers 2]

modules: a ParameterServer whose servers are processes of the host, and whose worker, this program, computes on the device. A step's
gradients are copied to the host while backward goes on, and pushed; the servers' SGD updates; what is pulled goes back. Printed
are copies and bytes a step, and the time of a step with copies that overlap and with copies that wait; "hidden" is how much of the
time that the copies alone take was saved. Then the largest difference of the parameters from one process that computes the same
gradients and updates on the host, which is to be 0, and from one that does all on the device.
session: the same training as a deferred graph over a cluster, Session(target=cluster), with variables on the server and the rest
on the worker's device; beside one process. Printed are messages and bytes between the tasks.

Without a device all of it runs on the CPU: the bytes are the same, and nothing is copied.
"""

from __future__ import annotations

import argparse
import statistics
import time

import tandem as td
from tandem.distributed import Cluster, ParameterServer

DEVICE = "cuda:0" if td.cuda.is_available() else "cpu"


def network(width: int, layers: int, device: str):
    td.manual_seed(0)
    found = []
    for _ in range(layers):
        found += [td.nn.Linear(width, width), td.nn.Tanh()]
    return td.nn.Sequential(*found, td.nn.Linear(width, 16)).to(device)


def batches(width: int, batch: int, device: str, count: int = 4) -> list:
    td.manual_seed(1)
    return [(td.randn(batch, width).to(device), td.randn(batch, 16).to(device)) for _ in range(count)]


def sgd(parameters):
    return td.optim.SGD(parameters, lr=0.01, momentum=0.9)


def gradients(model, x, y):
    ((model(x) - y) ** 2).mean().backward()


def finish():
    if DEVICE != "cpu":
        td.cuda.synchronize()


def median_step(step, count: int) -> float:
    times = []
    for k in range(count):
        finish()
        began = time.perf_counter()
        step(k)
        finish()
        times.append(time.perf_counter() - began)
    return statistics.median(times[2:])


def on_servers(cluster, options, overlap: bool) -> tuple:
    """(parameters after the steps, seconds of a step, server)"""
    model, data = network(options.width, options.layers, DEVICE), batches(options.width, options.batch, DEVICE)
    server = ParameterServer(
        model, sgd(model.parameters()), cluster=cluster, overlap=overlap, name=f"overlap {overlap}"
    )

    def step(k):
        gradients(model, *data[k % len(data)])
        server.step()

    seconds = median_step(step, options.steps)
    return [p.detach().cpu() for p in model.parameters()], seconds, server


def alone(options, updates_on: str) -> tuple:
    """(parameters after the steps, seconds of a step) of one process that computes gradients on the device."""
    model, data = network(options.width, options.layers, DEVICE), batches(options.width, options.batch, DEVICE)
    parameters = list(model.parameters())
    there = [td.nn.Parameter(p.detach().to(updates_on).clone()) for p in parameters]
    optimizer = sgd(there)

    def step(k):
        gradients(model, *data[k % len(data)])
        for p, q in zip(parameters, there, strict=True):
            q.grad, p.grad = p.grad.to(updates_on), None
        optimizer.step()
        with td.no_grad():
            for p, q in zip(parameters, there, strict=True):
                p.copy_(q.detach().to(DEVICE))

    seconds = median_step(step, options.steps)
    return [p.detach().cpu() for p in parameters], seconds


def difference(these, those) -> float:
    return max((a - b).abs().max().item() for a, b in zip(these, those, strict=True))


def compute_time(options) -> float:
    """Seconds of forward and backward alone."""
    model, data = network(options.width, options.layers, DEVICE), batches(options.width, options.batch, DEVICE)

    def step(k):
        gradients(model, *data[k % len(data)])
        for p in model.parameters():
            p.grad = None

    return median_step(step, options.steps)


def copy_time(options) -> float:
    """Seconds in which all gradients go to the host and as many bytes back, with nothing else."""
    if DEVICE == "cpu":
        return 0.0
    there = [p.detach() for p in network(options.width, options.layers, DEVICE).parameters()]
    here = [t.cpu() for t in there]

    def copy(_):
        for t in there:
            t.cpu()
        for t in here:
            t.to(DEVICE)

    return median_step(copy, 8)


def modules(options):
    print("modules: a ParameterServer on the host")
    with Cluster({"ps": options.servers}, engine="processes") as cluster:
        (a, waits, plain), (b, overlapped, server) = (on_servers(cluster, options, o) for o in (False, True))
        counts, steps = server.staging.counts, options.steps
        print(f"  {sum(p.numel() for p in server.parameters) * 4 / 1e6:.1f} MB of parameters in {len(a)} tensors")
        for where, text in (("host", "to the host  "), ("device", "to the device")):
            n, size = counts[f"to_{where}"], counts[f"bytes_to_{where}"]
            print(
                f"  {text} {n} copies, {size / 1e6:.1f} MB in {steps} steps and the first pull: {n / steps:.1f} a step"
            )
        print(f"  {counts['early']} gradients left before backward had ended, {counts['again']} of them copied again")
        print(
            f"  pushed {server.bytes['pushed'] / steps / 1e6:.2f} MB a step, pulled {server.bytes['pulled'] / 1e6:.1f} MB in all"
        )
        compute, copies = compute_time(options), copy_time(options)
        print(
            f"  a step: {waits * 1e3:.2f} ms with copies that wait, {overlapped * 1e3:.2f} ms overlapped: {overlapped / waits:.3f}"
        )
        print(f"  forward and backward alone {compute * 1e3:.2f} ms, copies alone {copies * 1e3:.2f} ms", end="")
        print(f"; hidden {(waits - overlapped) / copies:.2f} of them" if copies else "")
        server.close(), plain.close()
    host, device = alone(options, "cpu"), alone(options, DEVICE)
    print(
        f"  one process: {host[1] * 1e3:.2f} ms with updates on the host, {device[1] * 1e3:.2f} ms with all on {DEVICE}"
    )
    print(
        f"  largest difference: overlapped - waiting {difference(a, b):g}, from one process with updates on the host "
        f"{difference(b, host[0]):g}, with all on {DEVICE} {difference(b, device[0]):.3g}"
    )


def graph_of(options, ps: str, worker: str):
    start = [p.detach().cpu() for p in network(options.width, options.layers, "cpu").parameters()]
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (options.batch, options.width), name="x")
        y = td.placeholder(td.float32, (options.batch, 16), name="y")
        with td.device(ps):
            variables = [td.Variable(t, name=f"v{k}") for k, t in enumerate(start)]
        with td.device(worker):
            h = x
            for k in range(0, len(variables) - 2, 2):
                h = td.tanh(h @ variables[k].T + variables[k + 1])
            loss = ((h @ variables[-2].T + variables[-1] - y) ** 2).mean()
            slopes = td.gradients(loss, variables)
        train = td.session.group(*(v.assign_sub(0.01 * g) for v, g in zip(variables, slopes, strict=True)))
        init = td.global_variables_initializer()
    return graph, (x, y), variables, loss, train, init


def run_graph(options, target, ps: str, worker: str) -> tuple:
    graph, places, variables, _, train, init = graph_of(options, ps, worker)
    session = td.Session(graph, target=target) if target is not None else td.Session(graph)
    session.run(init)
    data = batches(options.width, options.batch, "cpu")
    seconds = median_step(
        lambda k: session.run(train, dict(zip(places, data[k % len(data)], strict=True))), options.steps
    )
    return [v.cpu() for v in session.run(variables)], seconds


def session(options):
    print("session: Session(target=cluster), variables on the server")
    with Cluster({"ps": 1, "worker": 1}, engine="processes") as cluster:
        before = {t: d["counts"] for t, d in cluster.describe().items()}
        found, seconds = run_graph(
            options, cluster, "/job:ps/task:0/device:cpu:0", f"/job:worker/task:0/device:{DEVICE}"
        )
        for task, described in cluster.describe().items():
            n, size = (described["counts"][k] - before[task][k] for k in ("messages", "bytes_sent"))
            print(f"  {task} sent {n / options.steps:.1f} messages, {size / options.steps / 1e6:.2f} MB a step")
    one, time_alone = run_graph(options, None, DEVICE, DEVICE)
    print(f"  a step: {seconds * 1e3:.2f} ms; one process {time_alone * 1e3:.2f} ms")
    print(f"  largest difference from one process: {difference(found, one):.3g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("width", 2048), ("layers", 8), ("batch", 2048), ("steps", 20), ("servers", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--parts", default="modules,session")
    options = parser.parse_args()
    print(f"on {DEVICE}" + (f": {td.cuda.get_device_name()}" if DEVICE != "cpu" else ", as there is no device"))
    for part, run in (("modules", modules), ("session", session)):
        if part in options.parts.split(","):
            run(options)


if __name__ == "__main__":
    main()
