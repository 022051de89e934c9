"""Gradients that are averaged by exchanging what they are products of: Note [Joined products] in codegen/join_products.py."""

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist

OPTIMISERS = {
    "sgd": lambda p: td.optim.SGD(p, lr=0.1),
    "momentum": lambda p: td.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: td.optim.AdamW(p, lr=0.01),
    "groups": lambda p: td.optim.SGD([{"params": p[:2], "lr": 0.1}, {"params": p[2:], "lr": 0.05}], lr=0.2),
    "clipped": lambda p: td.optim.SGD(p, lr=0.1),
    "gradients": lambda p: td.optim.SGD(p, lr=0.1),
}


def train(kind: str, rows=(5, 5, 5), steps: int = 4):
    """Parameters, and gradients where they stay, after some steps."""
    rank = dist.get_rank()
    td.manual_seed(0)
    model = td.nn.Sequential(td.nn.Linear(130, 161), td.nn.ReLU(), td.nn.Linear(161, 140), td.nn.Tanh())
    model = dist.data_parallel(model, bucket_cap_mb=1)
    optimizer = OPTIMISERS[kind](list(model.parameters()))

    @td.compile
    def step(x):
        optimizer.zero_grad()
        loss = ((model(x) - 1) ** 2).mean()
        loss.backward()
        if kind == "clipped":
            td.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        if kind != "gradients":
            optimizer.zero_grad()
        return loss

    n = rows[rank]
    for i in range(steps):
        step(td.sin(td.arange(n * 130).reshape(n, 130).to(td.float32) * (i + 1) + rank)).item()
    gradients = [p.grad.numpy() for p in model.parameters()] if kind == "gradients" else []
    return [p.detach().numpy() for p in model.parameters()] + gradients


def on_threads(count: int, *args, joins: bool):
    """What ranks have in the end, and how many products ran by themselves."""
    with td.switches(SKIP="" if joins else "join_products"), td.profile() as profile:
        found = dist.spawn(train, count, args, engine="threads", timeout=300)
    return found, sum(s.kind == "library" for s in profile.steps)


def compare(joined, apart):
    for mine, expected in zip(joined, apart, strict=True):
        for x, y, first in zip(mine, expected, joined[0], strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-6)
            np.testing.assert_array_equal(x, first)  # all ranks have the same bits


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_products_of_all_ranks_factors_are_the_averages_of_their_products(kind):
    joined, few = on_threads(2, kind, joins=True)
    apart, many = on_threads(2, kind, joins=False)
    compare(joined, apart)
    assert few < many or kind == "gradients"  # which lie where the program's results do


def test_three_ranks_with_batches_of_other_sizes():
    joined, few = on_threads(3, "adam", (3, 17, 8), joins=True)
    apart, many = on_threads(3, "adam", (3, 17, 8), joins=False)
    compare(joined, apart)
    assert few < many


def test_a_rank_with_a_long_batch_writes_its_product_and_so_do_all():
    compare(*(on_threads(2, "momentum", (5, 600), joins=joins)[0] for joins in (True, False)))


def train_wide(rows):
    """Some hundred rows in all, which the product takes in several slices, cut elsewhere than where ranks' rows end."""
    rank = dist.get_rank()
    td.manual_seed(0)
    model = dist.data_parallel(td.nn.Linear(784, 1001))
    optimizer = td.optim.SGD(model.parameters(), lr=0.1)

    @td.compile
    def step(x):
        (model(x) ** 2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step(td.sin(td.arange(rows[rank] * 784).reshape(rows[rank], 784).to(td.float32) + rank))
    return [p.detach().numpy() for p in model.parameters()]


@pytest.mark.parametrize("rows", [(97, 191, 5), (193, 192)])
def test_rows_of_all_ranks_in_several_slices(rows):
    found = []
    for skip in ("", "join_products"):
        with td.switches(SKIP=skip):
            found.append(dist.spawn(train_wide, len(rows), (rows,), engine="threads", timeout=300))
    compare(*found)
    assert any((x != y).any() for x, y in zip(found[0][0], found[1][0], strict=True))  # they were rounded otherwise


def in_processes():
    found = []
    for skip in ("", "join_products"):
        with td.switches(SKIP=skip):
            found.append([train(kind) for kind in OPTIMISERS] + [train("sgd", (4, 9))])
    return found


def test_ranks_that_are_processes():
    joined, apart = zip(*dist.spawn(in_processes, 2, timeout=300), strict=True)
    for i in range(len(joined[0])):
        compare([rank[i] for rank in joined], [rank[i] for rank in apart])


def factorise():
    """Gradients of factors are products of the other factor, which the same step updates."""
    td.manual_seed(0)
    model = td.nn.ParameterList([td.nn.Parameter(td.randn(200, 4)), td.nn.Parameter(td.randn(4, 210))])
    middle = td.nn.Parameter(td.randn(210, 220))
    model.append(middle)
    dist.data_parallel(model)
    optimizer = td.optim.SGD(model.parameters(), lr=0.001)
    target = td.ones(200, 220) * dist.get_rank()

    @td.compile
    def step(target):
        loss = ((model[0] @ (model[1] @ model[2]) - target) ** 2).sum() / 1000
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for _ in range(3):
        step(target).item()
    return [p.detach().numpy() for p in model.parameters()]


def test_factors_that_the_update_writes_are_read_before():
    found = []
    for skip in ("", "join_products"):
        with td.switches(SKIP=skip):
            found.append(dist.spawn(factorise, 2, engine="threads", timeout=300))
    compare(*found)


def accumulate():
    td.manual_seed(0)
    model = dist.data_parallel(td.nn.Linear(130, 160))
    optimizer = td.optim.SGD(model.parameters(), lr=0.1)

    @td.compile
    def step(x, y):
        with dist.no_sync(model):
            (model(x) ** 2).mean().backward()
        (model(y) ** 2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    for i in range(3):
        step(*(td.sin(td.arange(4 * 130).reshape(4, 130) * (i + 1.0) + dist.get_rank() + k) for k in range(2)))
    return [p.detach().numpy() for p in model.parameters()]


def test_gradients_that_were_added_up_before():
    found = []
    for skip in ("", "join_products"):
        with td.switches(SKIP=skip):
            found.append(dist.spawn(accumulate, 2, engine="threads", timeout=300))
    compare(*found)
