"""Plans are optimal, take what they say, and train as one process does."""

import re

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist

RNG = np.random.default_rng(0)


def weights(*shapes):
    return [td.tensor(RNG.standard_normal(s).astype(np.float32) * 0.2, requires_grad=True) for s in shapes]


def batch(*shape):
    return td.tensor(RNG.standard_normal(shape).astype(np.float32))


def mlp(rows, width, hidden):
    w1, w2 = weights((width, hidden), (hidden, width))
    return (lambda x: (td.relu(x @ w1) @ w2).square().mean()), (batch(rows, width),), [w1, w2]


def train(make, shape, steps=3):
    """Losses and weights of steps by a plan, on a mesh of this shape, and how many collectives there were."""
    settings = {"lr": 0.01, "eps": 1e-3}  # sums in another order do not make another step of a gradient near zero
    loss, args, w = make()
    expected = []
    optimizer = td.optim.Adam(w, **settings)
    for _ in range(steps):
        optimizer.zero_grad()
        found = loss(*args)
        found.backward()
        optimizer.step()
        expected.append(found.item())

    def work():
        loss, args, _ = make()
        plan = td.parallelize(loss, args, dist.Mesh(shape))
        optimizer = td.optim.Adam(plan.parameters(), **settings)
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            losses.append(plan.step(*args).item())
            optimizer.step()
        return losses, [p.full_tensor().detach().numpy() for p in plan.parameters()], plan.bytes

    results = dist.spawn(work, int(np.prod(shape)), engine="threads", timeout=300)
    for losses, found, _ in results:
        np.testing.assert_allclose(losses, expected, rtol=1e-4)
        for a, b in zip(found, w, strict=True):
            np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-3, atol=1e-4)
    return results


@pytest.mark.parametrize("shape", [(2,), (4,), (2, 2)])
@pytest.mark.parametrize("sizes", [(4, 64, 256), (64, 8, 16)])
def test_steps_by_a_plan_are_those_of_one_process(shape, sizes):
    results = train(shared(lambda: mlp(*sizes)), shape)
    assert len({moved for *_, moved in results}) == 1


def shared(make):
    """The same numbers each time, whichever thread asks."""
    kept = make()
    loss_args = kept[1]
    arrays = [p.detach().numpy().copy() for p in kept[2]]

    def again():
        w1, w2 = (td.tensor(a, requires_grad=True) for a in arrays)
        return (lambda x: (td.relu(x @ w1) @ w2).square().mean()), loss_args, [w1, w2]

    return again


def test_plans_are_kept_in_files(tmp_path):
    loss, args, _ = mlp(4, 64, 256)
    plan = td.parallelize(loss, args, (2,))
    plan.save(tmp_path / "plan.json")
    again = dist.load_plan(tmp_path / "plan.json", loss, args, (2,))
    assert again.parameter_placements == plan.parameter_placements and again.explain() == plan.explain()
    other, more, _ = mlp(8, 64, 256)
    with pytest.raises(td.errors.CheckpointError, match="another function"):
        dist.load_plan(tmp_path / "plan.json", other, more, (2,))
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(td.errors.CheckpointError, match="is no plan"):
        dist.load_plan(tmp_path / "bad.json", loss, args, (2,))


@pytest.mark.parametrize("sizes", [(4, 256, 512), (1024, 32, 32)])
def test_no_usual_way_is_better(sizes):
    loss, args, _ = mlp(*sizes)
    ways = td.parallelize(loss, args, (2,)).alternatives()
    assert min(a.seconds for a in ways.values()) == pytest.approx(ways["this plan"].seconds, rel=2e-3)
    assert len(ways) == 5


def gpt_loss():
    td.manual_seed(0)
    model = td.models.GPT2(vocabulary=48, context=8, layers=1, heads=2, width=16, dropout=0.0)
    tokens = td.tensor(np.random.default_rng(1).integers(0, 48, (4, 9)))
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    return model, (lambda x, y: td.nn.functional.cross_entropy(model(x).reshape(-1, 48), y.reshape(-1))), (x, y)


@pytest.mark.parametrize("limit", [None, 0.8])
def test_a_model_that_nobody_planned_for(limit):
    model, loss, args = gpt_loss()
    whole = loss(*args)
    whole.backward()
    expected = {n: p.grad.numpy() for n, p in model.named_parameters()}
    most = None if limit is None else limit * td.parallelize(loss, args, (2,)).memory

    def work(model, loss):
        plan = td.parallelize(loss, args, dist.Mesh(2), memory_limit=most).apply(model)
        found = plan.step(*args)
        return found.item(), {n: p.grad.full_tensor().numpy() for n, p in model.named_parameters()}

    made = [gpt_loss() for _ in range(2)]
    for found, gradients in dist.spawn(lambda: work(*made[dist.get_rank()][:2]), 2, engine="threads", timeout=300):
        assert found == pytest.approx(whole.item(), rel=1e-5)
        for name, g in gradients.items():
            np.testing.assert_allclose(g, expected[name], rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_plan_tells():
    loss, args, _ = mlp(4, 256, 2048)
    text = td.parallelize(loss, args, (2,)).explain()
    assert "optimal" in text and "matmul: R, S1 -> S1" in text and "all_reduce 4,096 B" in text


def test_what_cannot_be_planned_is_refused():
    loss, args, _ = mlp(4, 8, 8)
    with pytest.raises(td.errors.ShardingError, match="only described"):
        td.parallelize(loss, args, (2,)).step(*args)
    with pytest.raises(td.errors.ShapeError, match="must give the loss"):
        td.parallelize(lambda x: x, args, (2,))
    with pytest.raises(td.errors.ValueRangeError, match="no parameter"):
        td.parallelize(lambda x: x.sum(), args, (2,))
    with pytest.raises(td.errors.ValueRangeError, match="no plan was found"):
        td.parallelize(loss, args, (2,), memory_limit=10)


def test_all_ranks_tell_that_there_is_no_plan():
    def work():
        loss, args, _ = mlp(4, 8, 8)
        with pytest.raises(td.errors.ValueRangeError, match="no plan was found") as found:
            td.parallelize(loss, args, dist.Mesh(2), memory_limit=10)
        return str(found.value)

    first, second = dist.spawn(work, 2, engine="threads", timeout=300)
    assert first == second


def counted(records, rank, first):
    """(collective, bytes) of what a rank really did, from the flight record."""
    found = []
    for r in records:
        if r["rank"] == rank and r["sequence"] > first:
            name, size = re.match(r"(\w+).* of float32 \(([\d, ]*)\)", r["call"]).groups()
            elements = int(np.prod([int(n) for n in size.split(",") if n.strip()]))
            found.append((name, 4 * elements * (2 if name == "all_gather" else 1)))  # its result is counted
    return found


@pytest.mark.parametrize("way", [None, "data parallel", "fully sharded", "tensor parallel"])
def test_as_many_bytes_are_moved_as_predicted(way):
    make = shared(lambda: mlp(64, 16, 32))

    def work():
        loss, args, _ = make()
        mesh = dist.Mesh(2)
        plan = td.parallelize(loss, args, mesh, way=way).apply()
        group, rank = mesh.groups[0], dist.get_rank()
        first = max(r["sequence"] for r in dist.flight_record(group) if r["rank"] == rank)
        plan.step(*args).item()
        return sorted(counted(dist.flight_record(group), rank, first)), sorted(plan.moved)

    for done, predicted in dist.spawn(work, 2, engine="threads", timeout=300):
        assert done == predicted and (done or way in (None, "tensor parallel"))


def normalised():
    td.manual_seed(0)
    return td.nn.Sequential(td.nn.Linear(6, 8), td.nn.BatchNorm1d(8), td.nn.ReLU(), td.nn.Linear(8, 4))


def test_statistics_of_batches_are_those_of_the_whole_batch():
    x, y = batch(8, 6), batch(8, 4)
    model = normalised()
    whole = (model(x) - y).square().mean()
    whole.backward()
    copies = [normalised() for _ in range(2)]

    def work():
        own = copies[dist.get_rank()]
        loss = lambda x, y: (own(x) - y).square().mean()
        plan = td.parallelize(loss, (x, y), dist.Mesh(2), way="data parallel").apply(own)
        found = plan.step(x, y).item()
        return found, [p.grad.full_tensor().numpy() for p in own.parameters()], [b.numpy() for b in own.buffers()]

    for found, gradients, buffers in dist.spawn(work, 2, engine="threads", timeout=300):
        assert found == pytest.approx(whole.item(), rel=1e-5)
        for g, p in zip(gradients, model.parameters(), strict=True):
            np.testing.assert_allclose(g, p.grad.numpy(), rtol=1e-3, atol=1e-6)
        for a, b in zip(buffers, model.buffers(), strict=True):
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-6)
