"""Recommendations with embeddings on servers: tables whose rows exist once somebody has looked them up.

    python examples/recommend_sharded.py

People and items have numbers out of a huge range, as hashes of names are; tables of that size would fit nowhere. Rows are divided
over servers, made when they are first seen, and updated there by Adagrad; a step moves the rows of its batch and nothing else.
People like what is near their taste. The model, a product of rows and a small network, is asked which of two items a person likes.
"""

import numpy as np

import tandem as td
from tandem import nn

RANGE = 10**12  # of numbers that people and items may have


class Model(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        table = lambda seed: td.distributed.ShardedEmbedding(
            RANGE, width, td.optim.Adagrad, lr=0.1, scale=0.3, seed=seed
        )
        self.people, self.items = table(0), table(1)
        self.top = nn.Sequential(nn.Linear(2 * width, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, person, item):
        a, b = self.people(person), self.items(item)
        return (a * b).sum(-1) + self.top(td.cat([a, b], -1)).squeeze(-1)


def make_world(people: int, items: int, seed: int = 0):
    """Numbers of people and items, and a function that says how much one likes the other."""
    rng = np.random.default_rng(seed)
    tastes, kinds = rng.standard_normal((people, 3)), rng.standard_normal((items, 3))
    numbers = rng.integers(0, RANGE, people), rng.integers(0, RANGE, items)
    return numbers, lambda p, i: (tastes[p] * kinds[i]).sum(-1)


def main(people: int = 300, items: int = 200, steps: int = 300, batch: int = 256, servers: int = 2, engine: str = "processes",
         show=print):  # fmt: skip
    (person_numbers, item_numbers), liking = make_world(people, items)
    rng = np.random.default_rng(1)
    with td.distributed.Cluster({"ps": servers}, engine=engine) as cluster:
        td.manual_seed(0)
        model = Model(8)
        optimizer = td.optim.Adam(model.top.parameters(), lr=1e-2)
        server = td.distributed.ParameterServer(model, optimizer, mode="async", cluster=cluster)
        losses = []
        for _ in range(steps):
            p, i = rng.integers(0, people, batch), rng.integers(0, items, batch)
            label = td.tensor((liking(p, i) > 0).astype(np.float32))
            score = model(td.tensor(person_numbers[p]), td.tensor(item_numbers[i]))
            loss = nn.functional.binary_cross_entropy_with_logits(score, label)
            loss.backward()
            server.step()
            losses.append(loss.item())
        p, a, b = rng.integers(0, people, 1000), rng.integers(0, items, 1000), rng.integers(0, items, 1000)
        person = td.tensor(person_numbers[p])
        with td.no_grad():
            better = model(person, td.tensor(item_numbers[a])) > model(person, td.tensor(item_numbers[b]))
        right = float((better.numpy() == (liking(p, a) > liking(p, b))).mean())
        rows = [cluster.peer(t).call("ps.describe", model.people.name)[0]["rows"] for t in server.servers]
        moved = (model.people.moved["bytes"] + model.items.moved["bytes"]) / steps
    show(f"{right:.1%} of pairs in the right order; rows of people on the servers: {rows}; {moved / 1e3:.0f} KB a step")
    return losses, right, rows


if __name__ == "__main__":
    main()
