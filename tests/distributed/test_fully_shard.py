"""Fully sharded training equals training on the whole batch, with a part of every parameter on each rank."""

import gc

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist

X = np.random.default_rng(0).standard_normal((12, 5)).astype(np.float32)


def on_ranks(n, fn, *args):
    return dist.spawn(fn, n, args, engine="threads", timeout=60)


def make_model():
    td.manual_seed(0)
    return td.nn.Sequential(td.nn.Linear(5, 7), td.nn.ReLU(), td.nn.Linear(7, 2))


def shard(model, reshard=True):
    for layer in model:
        if isinstance(layer, td.nn.Linear):
            dist.fully_shard(layer, reshard_after_forward=reshard)
    return dist.fully_shard(model, reshard_after_forward=False)


def train(model, x, compiled, clip=None):
    optimizer = td.optim.Adam(model.parameters(), lr=0.05)

    def step(x):
        loss = (model(x) ** 2).mean()
        loss.backward()
        if clip is not None:
            td.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    run = td.compile(step) if compiled else step
    for _ in range(3):
        run(x)
    return optimizer


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("reshard", [False, True])
def test_ranks_with_parts_train_as_one_process_does_with_the_whole(n, compiled, reshard):
    models = [make_model() for _ in range(n)]

    def work():
        r = dist.get_rank()
        model = shard(models[r], reshard)
        assert list(dict(model.named_parameters())) == ["0.weight", "0.bias", "2.weight", "2.bias"]
        optimizer = train(model, td.tensor(X[r::n]), compiled, clip=0.2)
        held = sum(p.numel() for p in model.parameters())
        state = sum(
            t.numel() for s in optimizer.state.values() for t in s.values() if isinstance(t, td.Tensor) and t.ndim
        )
        return {k: v.numpy() for k, v in dist.full_state_dict(model).items()}, held, state

    alone = make_model()
    train(alone, td.tensor(X), False, clip=0.2)
    results = on_ranks(n, work)
    for whole, _, _ in results:
        for name, value in alone.state_dict().items():
            np.testing.assert_allclose(value.numpy(), whole[name], rtol=2e-4, atol=1e-5)
    total = sum(p.numel() for p in alone.parameters())
    assert sum(held for _, held, _ in results) == total
    assert sum(state for _, _, state in results) == 2 * total  # Adam's two moments


def test_whole_parameters_are_let_go_after_forward():
    """Between forward and backward a rank has its parts, and no layer's whole weight."""

    def work(reshard):
        model = td.nn.Sequential(*(td.nn.Linear(256, 256, bias=False) for _ in range(4)))
        for layer in model:
            dist.fully_shard(layer, reshard_after_forward=reshard)
        live = []
        for made in (lambda: None, lambda: model(td.ones(1, 256))):
            y = made()
            dist.barrier()
            live.append(td.memory.stats()["live_bytes"])  # of both ranks, which are threads of this process
            dist.barrier()
        y.sum().backward()
        return live[1] - live[0]

    def taken(reshard):
        gc.collect()  # of models before this one
        return on_ranks(2, work, reshard)[0]

    weight = 256 * 256 * 4
    assert taken(False) > 2 * 3 * weight  # three layers' weights on each of two ranks
    assert taken(True) < weight


def test_states_go_in_and_out():
    whole = make_model().state_dict()

    def work():
        model = td.nn.Sequential(td.nn.Linear(5, 7), td.nn.ReLU(), td.nn.Linear(7, 2))
        shard(model)
        dist.load_full_state_dict(model, whole)
        weight = model[0].weight
        assert isinstance(weight, dist.ShardedParameter) and weight.division.shape == (7, 5)
        return {k: v.tolist() for k, v in dist.full_state_dict(model).items()}, weight.shape[0]

    results = on_ranks(3, work)
    assert [rows for _, rows in results] == [3, 2, 2]
    for state, _ in results:
        assert state == {k: v.tolist() for k, v in whole.items()}


def test_collectives_are_those_that_are_needed():
    """Of a linear layer with reshard: one all-gather forward, one for backward of what is before it, and one reduce-scatter."""

    def work():
        model = td.nn.Sequential(td.nn.Linear(4, 4, bias=False), td.nn.Linear(4, 4, bias=False))
        for layer in model:
            dist.fully_shard(layer)
        before = max(e["sequence"] for e in dist.flight_record() if e["rank"] == dist.get_rank())
        model(td.ones(1, 4)).sum().backward()
        mine = [e["call"] for e in dist.flight_record() if e["rank"] == dist.get_rank() and e["sequence"] > before]
        return [c.partition(" of ")[0] for c in mine]

    for calls in on_ranks(2, work):
        assert calls.count("reduce_scatter(sum)") == 2
        assert calls.count("all_gather") == 3  # the first layer needs none in backward


def test_mistakes():
    def work():
        model = dist.fully_shard(td.nn.Linear(2, 2))
        with pytest.raises(td.DistributedError, match="fully sharded already"):
            dist.fully_shard(model)
        with pytest.raises(td.ShapeError, match=r"weight is \(3, 2\) and the parameter \(2, 2\)"):
            dist.load_full_state_dict(model, {"weight": td.ones(3, 2), "bias": td.ones(2)})

    on_ranks(1, work)
