"""Hogwild: several processes train one model without locks, on parameters in shared memory (Recht et al. 2011).

    python examples/hogwild.py --processes 2 --epochs 8

Each process goes through its own part of the handwritten digits of scikit-learn (UCI optical digits, CC BY 4.0) and updates the
common parameters whenever it has a gradient. Now and then two updates meet and one of them is partly lost; training does not mind.
"""

import argparse
import os
import time

os.environ.setdefault("TANDEM_NUM_THREADS", "1")  # one thread each: the processes are the parallelism here

import tandem as td
import tandem.multiprocessing as mp
from tandem import nn
from tandem.nn import functional as F


def make_model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def train(rank: int, options, model: nn.Module, losses):
    """One process: plain training, but the model is the same memory everywhere."""
    td.manual_seed(options.seed + rank)
    data = td.data.sets.digits("train")
    sampler = td.data.DistributedSampler(data, options.processes, rank, seed=options.seed)
    loader = td.data.DataLoader(data, batch_size=options.batch_size, sampler=sampler)
    optimizer = td.optim.SGD(model.parameters(), lr=options.lr, momentum=0.5)  # momentum is each process's own
    loss = td.tensor(0.0)
    for _ in range(options.epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        losses[rank] = loss.detach()  # a tensor in shared memory, too


def accuracy(model: nn.Module) -> float:
    images, labels = td.data.sets.digits("test").tensors
    with td.no_grad():
        return float((model(images).argmax(-1) == labels).float().mean())


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    td.manual_seed(options.seed)
    model = make_model().share_memory()  # before the processes are given it
    losses = td.zeros(options.processes).share_memory_()
    print(f"before: accuracy {accuracy(model):.3f}")

    start = time.perf_counter()
    context = mp.get_context("forkserver")
    processes = [
        context.Process(target=train, args=(rank, options, model, losses)) for rank in range(options.processes)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    failed = [p.exitcode for p in processes if p.exitcode]
    if failed:
        raise SystemExit(f"processes ended with {failed}")
    print(f"last losses: {', '.join(f'{loss:.3f}' for loss in losses.tolist())}")
    print(f"after {time.perf_counter() - start:.1f} s: accuracy {accuracy(model):.3f}")


if __name__ == "__main__":
    main()
