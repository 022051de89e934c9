"""Updates of parameters that are done by whoever averages their gradients: Note [Joined updates] in codegen/updates.py."""

import copy

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist

APART = "join_products"  # which rounds differently


def make_model(rank):
    """Ranks need not have the same parameters: what a rank has is updated as it would do it itself."""
    td.manual_seed(rank)
    return td.nn.Sequential(td.nn.Linear(130, 160), td.nn.ReLU(), td.nn.Linear(160, 7))


OPTIMISERS = {
    "sgd": lambda p, rank: td.optim.SGD(p, lr=0.1 * (rank + 1)),
    "momentum": lambda p, rank: td.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01 * rank),
    "adam": lambda p, rank: td.optim.Adam(p, lr=0.01),
}


def train(kind: str, keeps: bool):
    """Parameters and gradients after some steps."""
    rank = dist.get_rank()
    model = dist.data_parallel(make_model(0), bucket_cap_mb=1)
    with td.no_grad():
        for p in model.parameters():
            p += 0.01 * rank
    optimizer = OPTIMISERS[kind](model.parameters(), rank)
    x = td.arange(5 * 130).reshape(5, 130).to(td.float32) / 1000 + rank

    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        if not keeps:
            optimizer.zero_grad()
        return loss

    step = td.compile(step)
    for _ in range(4):
        step(x).item()
    gradients = [p.grad.numpy() for p in model.parameters()] if keeps else []
    return [p.detach().numpy() for p in model.parameters()] + gradients


def on_threads(kind: str, keeps: bool, joins: bool):
    """What two ranks have in the end, and how many kernels ran."""
    with td.switches(SKIP=APART if joins else f"join_updates,{APART}"), td.profile() as profile:
        found = dist.spawn(train, 2, (kind, keeps), engine="threads", timeout=300)
    return found, sum(s.kind == "kernel" for s in profile.steps)


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("kind", OPTIMISERS)
def test_every_rank_gets_what_it_would_have_computed(kind, keeps):
    joined, few = on_threads(kind, keeps, True)
    apart, many = on_threads(kind, keeps, False)
    for mine, expected in zip(joined, apart, strict=True):
        for x, y in zip(mine, expected, strict=True):
            np.testing.assert_array_equal(y, x)
    assert few < many  # some are joined
    assert any((x != y).any() for x, y in zip(*joined, strict=True))  # ranks did differ


def in_processes():
    found = []
    for skip in (APART, f"join_updates,{APART}"):
        with td.switches(SKIP=skip):
            found.append([train(kind, keeps) for kind in OPTIMISERS for keeps in (False, True)])
    return found


def test_ranks_that_are_processes():
    for joined, apart in dist.spawn(in_processes, 2, timeout=300):
        for mine, expected in zip(joined, apart, strict=True):
            for x, y in zip(mine, expected, strict=True):
                np.testing.assert_array_equal(y, x)


def other_programs():
    """One rank clips its gradients, the other does not: their kernels differ, and each runs its own."""
    rank = dist.get_rank()
    model = dist.data_parallel(make_model(0))
    alone = copy.deepcopy(model)
    optimizer = td.optim.SGD(model.parameters(), lr=0.1, maximize=rank == 1)
    x = td.ones(5, 130)

    @td.compile
    def step(x):
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step(x)
    (alone(x) ** 2).mean().backward()
    sign = 1 if rank == 1 else -1
    return [
        np.abs((p + sign * 0.1 * q.grad - r).detach().numpy()).max()
        for p, q, r in zip(alone.parameters(), alone.parameters(), model.parameters(), strict=True)
    ]


def test_ranks_with_other_kernels_run_their_own():
    for differences in dist.spawn(other_programs, 2, engine="threads", timeout=300):
        assert max(differences) < 1e-6
