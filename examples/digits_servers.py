"""Handwritten digits trained by several workers on parameter servers: asynchronously, and synchronously with a backup worker.

    python examples/digits_servers.py

Parameters are on two servers, which also run Adam; workers pull, compute gradients of their part of the images, and push. In the
second run one worker is slow: steps take the first gradients that come, and what it hands in too late is dropped. The data are
scikit-learn's digits (UCI optical digits, CC BY 4.0): `pip install scikit-learn`.
"""

import threading
import time

import tandem as td
from tandem import nn
from tandem.nn import functional as F

WORKERS = 3


def make_model() -> nn.Module:
    td.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def work(cluster, worker: int, models: list, mode: dict, steps: int, delay: float, reports: dict):
    """One worker: its own copy of the model, its own part of the images."""
    images, labels = td.data.sets.digits("train").tensors
    images, labels = images[worker::WORKERS], labels[worker::WORKERS]
    model = models[worker]
    optimizer = td.optim.Adam(model.parameters(), lr=5e-3)
    server = td.distributed.ParameterServer(model, optimizer, cluster=cluster, worker=worker, workers=WORKERS, **mode)
    stalest = 0
    while server.version < steps:
        begin = 32 * server.pushed % (len(images) - 32)
        loss = F.cross_entropy(model(images[begin : begin + 32]), labels[begin : begin + 32])
        loss.backward()
        time.sleep(delay)
        report = server.step()
        stalest = max(stalest, report.staleness)
    reports[worker] = (server.reports, stalest)


def train(engine: str, mode: dict, steps: int, delays: list[float]):
    """The model after `steps` updates, and what became of each worker's gradients."""
    models = [make_model() for _ in range(WORKERS)]
    reports: dict[int, tuple] = {}
    with td.distributed.Cluster({"ps": 2}, engine=engine) as cluster:
        threads = [
            threading.Thread(target=work, args=(cluster, k, models, mode, steps, delays[k], reports))
            for k in range(WORKERS)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    return models[0], reports


def accuracy(model: nn.Module) -> float:
    images, labels = td.data.sets.digits("test").tensors
    with td.no_grad():
        return (model(images).argmax(-1) == labels).float().mean().item()


def main(steps: int = 300, engine: str = "processes", slow: float = 0.02, show=print):
    model, reports = train(engine, {"mode": "async"}, steps, [0.0] * WORKERS)
    right = {"async": accuracy(model)}
    show(
        f"asynchronous: {right['async']:.1%} right; gradients were up to {max(s for _, s in reports.values())} updates old"
    )
    model, reports = train(
        engine, {"mode": "backup", "needed": WORKERS - 1}, steps // 2, [0.0] * (WORKERS - 1) + [slow]
    )
    right["backup"] = accuracy(model)
    dropped = reports[WORKERS - 1][0]["dropped"]
    show(f"two of three count: {right['backup']:.1%} right; {dropped} gradients of the slow worker came too late")
    return right, reports


if __name__ == "__main__":
    main()
