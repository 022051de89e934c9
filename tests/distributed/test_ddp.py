"""Data parallel training equals training on the whole batch; samplers divide an epoch."""

import copy

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist


def on_ranks(n, fn, *args):
    return dist.spawn(fn, n, args, engine="threads", timeout=300)


def make_model(seed=0):
    td.manual_seed(seed)
    return td.nn.Sequential(td.nn.Linear(4, 8), td.nn.ReLU(), td.nn.Linear(8, 2))


X = np.random.default_rng(0).standard_normal((12, 4)).astype(np.float32)


def train(model, x, compiled, steps=3):
    optimizer = td.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    run = td.compile(step) if compiled else step
    for _ in range(steps):
        run(x)
    return [p.detach().numpy() for p in model.parameters()]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_ranks_with_parts_train_as_one_process_does_with_the_whole(n, compiled):
    models = [make_model(r) for r in range(n)]  # those of other ranks than the first do not matter

    def work():
        r = dist.get_rank()
        model = dist.DistributedDataParallel(models[r], bucket_cap_mb=0.0001)
        return train(model, td.tensor(X[r::n]), compiled)

    expected = train(make_model(0), td.tensor(X), False)
    results = on_ranks(n, work)
    for mine in results:
        for a, b in zip(expected, mine, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    for a, b in zip(results[0], results[-1], strict=True):
        np.testing.assert_array_equal(a, b)


def test_nothing_is_renamed():
    def work():
        model = make_model()
        names = list(model.state_dict())
        wrapped = td.nn.parallel.DistributedDataParallel(model)
        assert list(wrapped.state_dict()) == names and wrapped.module is model
        assert isinstance(wrapped, td.nn.Sequential) and isinstance(wrapped, dist.DistributedDataParallel)
        wrapped.eval()
        assert not model.training
        other = copy.deepcopy(model)
        other(td.ones(1, 4)).sum().backward()  # the copy is an ordinary module: no collective
        with pytest.raises(td.DistributedError, match="data parallel already"):
            dist.data_parallel(model)
        with pytest.raises(td.DistributedError, match="is not data parallel"), dist.no_sync(other):
            pass

    on_ranks(1, work)


def test_no_sync_accumulates_and_then_averages_the_sums():
    def work():
        r = dist.get_rank()
        model = dist.data_parallel(td.nn.Linear(1, 1, bias=False))
        calls = own_calls()
        with dist.no_sync(model):
            model(td.full((1, 1), float(r + 1))).sum().backward()
        assert model.weight.grad.item() == r + 1 and own_calls() == calls
        model(td.full((1, 1), 10.0)).sum().backward()
        return model.weight.grad.item()

    assert on_ranks(2, work) == [11.5, 11.5]


class Branches(td.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (td.nn.Linear(1, 1, bias=False) for _ in range(3))

    def forward(self, x, which):
        return (self.a, self.b)[which](x)


def test_parameters_that_some_ranks_do_not_use():
    def work():
        r = dist.get_rank()
        model = dist.DistributedDataParallel(Branches(), find_unused_parameters=True)
        model(td.ones(1, 1), r).sum().backward()
        return model.a.weight.grad.item(), model.b.weight.grad.item(), model.c.weight.grad

    assert on_ranks(2, work) == [(0.5, 0.5, None)] * 2


def test_unused_parameters_that_nobody_expects_are_an_error_on_all_ranks():
    def work():
        model = dist.data_parallel(Branches())
        x = td.ones(1, 1)
        with pytest.raises(td.DistributedError, match="ranks do not agree"):
            if dist.get_rank() == 0:
                model(x, 0).sum().backward()
            else:
                (model(x, 0) + model(x, 1)).sum().backward()

    on_ranks(2, work)


def test_buffers_are_those_of_the_first_rank():
    def work():
        model = dist.data_parallel(td.nn.BatchNorm1d(2))
        x = td.full((4, 2), float(dist.get_rank() + 1)) * td.arange(4).reshape(4, 1)
        model(x)
        model(x)
        model.eval()
        return model.running_mean.tolist()

    first, second = on_ranks(2, work)
    assert first != second  # the latest forward pass was each rank's own
    assert second[0] == pytest.approx(0.1 * 1.5 * 0.9 + 0.1 * 3)  # on what the first rank had before it


@pytest.mark.parametrize("counts", [(2, 2), (3, 1), (0, 2)])
def test_ranks_with_different_numbers_of_batches(counts):
    def work():
        r = dist.get_rank()
        model = dist.DistributedDataParallel(td.nn.Linear(1, 1, bias=False))
        with td.no_grad():
            model.weight.zero_()
        with model.join():
            for _ in range(counts[r]):
                model(td.ones(1, 1)).sum().backward()
                with td.no_grad():
                    model.weight -= model.weight.grad
                model.zero_grad()
        return model.weight.item()

    results = on_ranks(2, work)
    last = counts.index(max(counts))  # a rank that is done takes no steps itself
    assert results[last] == -sum(counts) / 2


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_each_sample_comes_once_for_any_number_of_ranks(n):
    samplers = [td.data.DistributedSampler(range(23), n, r, pad=False) for r in range(n)]
    parts = [list(s) for s in samplers]
    assert sorted(i for part in parts for i in part) == list(range(23))
    assert [len(s) for s in samplers] == [len(p) for p in parts]


def test_an_epoch_goes_on_with_another_number_of_ranks():
    used = []
    for r in range(4):
        used += list(td.data.DistributedSampler(range(23), 4, r, pad=False))[:2]
    rest = []
    for r in range(3):
        sampler = td.data.DistributedSampler(range(23), 3, r, pad=False)
        sampler.resume(len(used))
        rest += list(sampler)
    assert sorted(used + rest) == list(range(23))


def test_the_sampler_knows_its_rank():
    def work():
        return list(td.data.DistributedSampler(range(4), shuffle=False))

    assert on_ranks(2, work) == [[0, 2], [1, 3]]


def own_calls():
    return len([record for record in dist.flight_record() if record["rank"] == dist.get_rank()])


def order_of(bucket_bytes):
    """Which calls come in which order: gradients of a chain of layers, and reductions."""
    model = td.nn.Sequential(*[td.nn.Linear(4, 4, bias=False) for _ in range(4)])
    dist.data_parallel(model, bucket_cap_mb=bucket_bytes / 2**20)
    calls = []
    for i, layer in enumerate(model):
        layer.weight.register_hook(lambda g, i=i: calls.append(f"gradient {i}"))
    reducer, average = model.__dict__["_data_parallel"], None
    average = reducer._average_bucket
    reducer._average_bucket = lambda bucket, in_background=False: (
        calls.append(f"reduces {len(bucket)}"), average(bucket, in_background),
    )  # fmt: skip
    (model(td.ones(2, 4) * (dist.get_rank() + 1)) ** 2).sum().backward()
    return calls, [p.grad.tolist() for p in model.parameters()]


def test_a_bucket_is_reduced_as_soon_as_backward_has_made_its_gradients():
    td.manual_seed(3)
    (calls, early), (_, other) = dist.spawn(order_of, 2, (2 * 64,), engine="threads")
    assert calls == ["gradient 3", "gradient 2", "reduces 2", "gradient 1", "gradient 0", "reduces 2"]
    assert early == other
    td.manual_seed(3)
    (calls, late), _ = dist.spawn(order_of, 2, (1000 * 64,), engine="threads")
    assert calls[-1] == "reduces 4" and late == early


def test_gradients_of_several_dtypes_and_of_weights_used_twice():
    class Tied(td.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = td.nn.Linear(3, 3), td.nn.Linear(3, 3)
            self.c = td.nn.Linear(3, 3, dtype=td.float64)

        def forward(self, x):
            x = td.checkpoint(self.a, self.b(td.checkpoint(self.a, x)))
            return self.c(x.to(td.float64)).sum()

    def work(parallel):
        td.manual_seed(0)
        model = Tied()
        if parallel:
            dist.data_parallel(model, bucket_cap_mb=40 / 2**20)
        model(td.ones(2, 3) * (dist.get_rank() + 1)).backward()
        if not parallel:
            for p in model.parameters():
                dist.all_reduce(p.grad, "avg")
        return [p.grad.tolist() for p in model.parameters()]

    expected = dist.spawn(work, 2, (False,), engine="threads")
    for a, b in zip(dist.spawn(work, 2, (True,), engine="threads"), expected, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-6)


def test_a_backward_pass_that_fails_leaves_nothing_behind():
    def work():
        model = dist.data_parallel(td.nn.Sequential(td.nn.Linear(2, 2), td.nn.Linear(2, 2)), bucket_cap_mb=20 / 2**20)
        failing = model[0].weight.register_hook(lambda g: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(td.ones(1, 2)).sum().backward()
        failing.remove()
        for p in model.parameters():
            p.grad = None
        model(td.ones(1, 2) * (dist.get_rank() + 1)).sum().backward()
        return model[1].bias.grad.tolist(), model[0].weight.grad.tolist()

    first, second = dist.spawn(work, 2, engine="threads")
    assert first == second


class OneOfTwo(td.nn.Module):
    """Two layers of one shape, of which a rank uses one."""

    def __init__(self, which):
        super().__init__()
        self.a, self.b, self.which = td.nn.Linear(2, 3), td.nn.Linear(2, 3), which

    def forward(self, x):
        return (self.a if self.which() == 0 else self.b)(x)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("differ", [False, True])
def test_gradients_of_different_parameters_are_not_averaged(compiled, differ):
    """Not even where they have one shape, so that nothing else would notice."""

    def work():
        model = dist.data_parallel(OneOfTwo(lambda: dist.get_rank() if differ else 1))

        def step(x):
            loss = model(x).sum()
            loss.backward()
            return loss

        (td.compile(step) if compiled else step)(td.ones(4, 2))
        return model.a.weight.grad, model.b.weight.grad.tolist()

    if differ:
        with pytest.raises(
            td.DistributedError, match=r"different parameters\n  fix: use data_parallel\(model, find_unused"
        ):
            dist.spawn(work, 2, engine="threads", timeout=300)
    else:
        assert dist.spawn(work, 2, engine="threads", timeout=300) == [(None, [[4.0, 4.0]] * 3)] * 2


def test_models_whose_parameters_have_other_names_or_another_order_are_refused():
    """Tensors of one shape fit one another, and one layer would get another one's weights."""

    def work():
        names = ("a", "b") if dist.get_rank() else ("b", "a")
        dist.data_parallel(td.nn.ModuleDict({name: td.nn.Linear(3, 3) for name in names}))

    with pytest.raises(td.DistributedError, match="make the same model on every rank") as caught:
        on_ranks(2, work)
    assert "the parameters and buffers of a model" in str(caught.value) and "test_ddp.py:" in str(caught.value)
