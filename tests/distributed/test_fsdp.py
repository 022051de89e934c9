"""Fully sharded training equals training on the whole batch, with a part of every parameter on each rank."""

import gc

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tandem import distributed as dist

X = np.random.default_rng(0).standard_normal((12, 5)).astype(np.float32)


def on_ranks(n, fn, *args):
    return dist.spawn(fn, n, args, engine="threads", timeout=300)


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


def batch_norm_model():
    td.manual_seed(0)
    inner = td.nn.Sequential(td.nn.Linear(7, 4, bias=False), td.nn.BatchNorm1d(4))
    return td.nn.Sequential(
        td.nn.Linear(5, 7, bias=False), td.nn.BatchNorm1d(7), td.nn.ReLU(), inner, td.nn.Tanh(), td.nn.Linear(4, 2)
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_statistics_of_batches_are_kept_while_parameters_are_divided(compiled):
    """Also where units are nested, and in eval mode nothing is written. Every rank sees the same batch, as one process does."""
    alone = batch_norm_model()
    train(alone, td.tensor(X), compiled)
    expected = {name: value.numpy().copy() for name, value in alone.state_dict().items()}
    models = [batch_norm_model() for _ in range(2)]

    def work():
        model = models[dist.get_rank()]
        dist.fully_shard(model[3])
        dist.fully_shard(model)
        train(model, td.tensor(X), compiled)
        state = {name: value.numpy().copy() for name, value in dist.full_state_dict(model).items()}
        model.eval()
        model(td.tensor(X)).sum().backward()
        assert int(model[1].num_batches_tracked) == 3
        return state

    for state in on_ranks(2, work):
        assert list(state) == list(expected)
        assert int(state["1.num_batches_tracked"]) == 3 and np.abs(state["1.running_mean"]).max() > 1e-3
        for name, value in expected.items():
            np.testing.assert_allclose(state[name], value, rtol=2e-3, atol=2e-3, err_msg=name)


def test_large_buffers_that_nobody_writes_are_no_results():
    model = td.nn.Sequential(td.nn.Linear(5, 7))
    model.register_buffer("table", td.ones(1000))
    written = []

    def work():
        dist.fully_shard(model)
        before, version = model.table, model.table._version
        model(td.tensor(X)).sum().backward()
        written.append(model.table is not before or model.table._version != version)

    on_ranks(1, work)
    assert written == [False]


@pytest.mark.parametrize("compiled", [False, True])
def test_statistics_of_batches_on_a_mesh_are_those_of_the_whole_batch(compiled):
    alone = batch_norm_model()
    train(alone, td.tensor(X), compiled)
    models = [batch_norm_model() for _ in range(2)]

    def work():
        mesh = dist.Mesh(2, "data")
        model = models[dist.get_rank()]
        dist.fully_shard(model[3], mesh=mesh)
        dist.fully_shard(model, mesh=mesh)
        train(model, dist.distribute_tensor(td.tensor(X), mesh, [dist.Shard(0)]), compiled)
        return {name: value.full_tensor().numpy().copy() for name, value in model.state_dict().items()}

    for state in on_ranks(2, work):
        for name, value in alone.state_dict().items():
            np.testing.assert_allclose(state[name], value.numpy(), rtol=2e-3, atol=2e-3, err_msg=name)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("reshard", [False, True])
@pytest.mark.parametrize("on_mesh", [False, True])
def test_ranks_that_use_layers_of_one_shape_in_different_orders_are_told(compiled, reshard, on_mesh):
    """Their gathers fit one another, and would mix the weights of two layers."""

    def work():
        mesh = dist.Mesh((2,)) if on_mesh else None
        layers = [td.nn.Linear(4, 4, bias=False) for _ in range(2)]
        for layer in layers:
            dist.fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)

        def step(x):
            for layer in reversed(layers) if dist.get_rank() else layers:
                x = layer(x)
            x.sum().backward()

        x = td.ones(2, 4)
        (td.compile(step) if compiled else step)(x if mesh is None else dist.distribute_tensor(x, mesh))

    with pytest.raises(td.DistributedError) as caught:
        on_ranks(2, work)
    text = str(caught.value)
    assert (
        "they use different layers here" in text and "use the layers of a fully sharded model in the same order" in text
    )
    for rank in range(2):
        assert (
            f"rank {rank}: all_gather of float32 (2, 4), parameter {rank + 1} of those that fully_shard divided at "
            in text
        )
    assert text.count("test_fsdp.py:") >= 2  # both lines


def test_gradients_of_layers_of_one_shape_are_told_apart():
    """Forward is alike; backward reaches the layers in different orders."""

    def work():
        a, b = (dist.fully_shard(td.nn.Linear(4, 4, bias=False), reshard_after_forward=False) for _ in range(2))
        y, z = a(td.ones(2, 4)), b(td.ones(2, 4))
        for out in (z, y) if dist.get_rank() else (y, z):
            out.sum().backward()

    with pytest.raises(td.DistributedError, match=r"reduce_scatter\(sum\) of float32 \(4, 4\), parameter 2"):
        on_ranks(2, work)


def test_the_number_of_a_parameter_needs_no_program_of_its_own():
    def work():
        layers = [dist.fully_shard(td.nn.Linear(6, 6), reshard_after_forward=False) for _ in range(3)]
        plans = []
        for layer in layers:
            layer(td.ones(2, 6)).sum().backward()
            plans.append(F.all_gather.num_plans)
        return plans

    for plans in on_ranks(2, work):
        assert plans[1] == plans[2]
