"""A small residual network trained by ranks that may die and be replaced while it learns.

    tandem run --elastic -n 3 --max-restarts 2 examples/elastic_resnet.py

Kill a rank meanwhile (kill -9): the others go on without it, and a new process takes its place. No sample of an epoch is used
twice, however many ranks there are.
"""

import argparse
import os

import tandem as td
from tandem import distributed as dist
from tandem import nn
from tandem.distributed import elastic

CLASSES = 4


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, width: int):
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList([nn.GroupNorm(2, width) for _ in range(2)])

    def forward(self, x):
        y = nn.functional.relu(self.norms[0](self.first(x)))
        return nn.functional.relu(x + self.norms[1](self.second(y)))


def resnet(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), Block(width), nn.MaxPool2d(2), Block(width), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(width, CLASSES),
    )  # fmt: skip


def images(count: int):
    """Noisy stripes in four directions."""
    generator = td.Generator(0)
    labels = td.arange(count) % CLASSES
    rows, columns = td.arange(12).reshape(12, 1), td.arange(12).reshape(1, 12)
    patterns = (
        td.stack([(rows + 0 * columns) % 4, (0 * rows + columns) % 4, (rows + columns) % 4, (rows - columns) % 4]) < 2
    )
    noise = td.randn(count, 12, 12, generator=generator)
    return (patterns[labels].to(td.float32) + 0.3 * noise).reshape(count, 1, 12, 12), labels


def train(state, data, epochs: int, batch: int, show):
    """Goes on where the state is: it is called again whenever ranks go or come."""
    x, y = data
    rank, ranks = dist.get_rank(), dist.get_world_size()
    sampler = td.data.DistributedSampler(range(len(x)), pad=False)
    while state.epoch < epochs:
        sampler.set_epoch(state.epoch)
        sampler.resume(state.used)
        mine = list(sampler)
        steps = (len(x) - state.used) // (ranks * batch)  # whole batches on every rank
        for k in range(steps):
            rows = td.tensor(mine[k * batch : (k + 1) * batch])
            loss = nn.functional.cross_entropy(state.model(x[rows]), y[rows])
            state.optimizer.zero_grad()
            loss.backward()
            state.optimizer.step()
            state.used += ranks * batch
            state.losses = [*state.losses, loss.item()]
            state.commit()
        if rank == 0:
            show(f"epoch {state.epoch}: loss {state.losses[-1]:.3f}, {ranks} ranks, process {os.getpid()}")
        state.epoch, state.used = state.epoch + 1, 0
        state.commit()
    return state.losses


def main(epochs=4, samples=240, batch=10, width=8, show=print):
    dist.init_process_group(elastic=True)
    td.manual_seed(0)
    model = dist.data_parallel(resnet(width))
    optimizer = td.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    state = elastic.State(model=model, optimizer=optimizer, epoch=0, used=0, losses=[])
    losses = elastic.run(lambda state: train(state, images(samples), epochs, batch, show), state)
    dist.destroy_process_group()
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    main(parser.parse_args().epochs)
