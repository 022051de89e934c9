"""Layers divided among ranks train as one process does, with the collectives that they are known to need."""

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist
from tests.distributed.sharding.ranks import R, S, on_mesh, sharded

X = np.random.default_rng(0).standard_normal((4, 6, 8)).astype(np.float32)


def make_mlp():
    td.manual_seed(0)
    return td.nn.Sequential(td.nn.Linear(8, 12), td.nn.GELU(), td.nn.Linear(12, 8))


def train(model, x, compiled=False, autocast=False, scaler=None, accumulate=1):
    optimizer = td.optim.AdamW(model.parameters(), lr=0.05)

    def step(x):
        for _ in range(accumulate):
            with td.autocast("cpu", td.bfloat16, enabled=autocast):
                loss = (model(x).float() ** 2).mean() / accumulate
            (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is not None:
            scaler.unscale_(optimizer)
        td.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step() if scaler is None else scaler.step(optimizer)
        if scaler is not None:
            scaler.update()
        optimizer.zero_grad()
        return loss

    run = td.compile(step) if compiled else step
    losses = [run(x).item() for _ in range(3)]
    return losses, [np.array(p.detach().numpy()) for p in model.parameters()]


def plan(kind):
    if kind == "sequence":
        return {"0": dist.ColwiseParallel(input_layouts=S(1)), "2": dist.RowwiseParallel(output_layouts=S(1))}
    return {"0": dist.ColwiseParallel(), "2": dist.RowwiseParallel()}


def test_data_and_tensor_parallel_on_one_mesh():
    def work():
        mesh = dist.Mesh((2, 2), ("data", "model"))
        model = dist.parallelize_module(make_mlp(), mesh, plan("tensor"))
        return train(model, sharded(X, mesh, [S(0), R]))

    expected = train(make_mlp(), td.tensor(X))
    for made in dist.spawn(work, 4, engine="threads", timeout=300):
        same(made, expected)


def same(made, expected, rtol=1e-4, atol=2e-5):
    np.testing.assert_allclose(made[0], expected[0], rtol=rtol, atol=atol)
    for a, b in zip(made[1], expected[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["tensor", "sequence"])
def test_column_and_row_parallel_layers_train_as_one_process_does(kind, compiled):
    def work(mesh):
        model = dist.parallelize_module(make_mlp(), mesh, plan(kind))
        return train(model, sharded(X, mesh, [S(1) if kind == "sequence" else R]), compiled)

    expected = train(make_mlp(), td.tensor(X))
    for made in on_mesh((2,), work):
        same(made, expected)


def test_a_column_row_pair_reduces_once_forward_and_once_backward():
    def work(mesh):
        model = dist.parallelize_module(make_mlp(), mesh, plan("tensor"))
        x = sharded(X, mesh, [R], requires_grad=True)
        before = len(counted(mesh))
        with dist.sharding_report() as forward:
            y = model(x)
        with dist.sharding_report() as backward:
            (y**2).sum().backward()
        ran = counted(mesh)[before:]
        return forward.collectives, backward.collectives, ran, forward.bytes + backward.bytes

    for forward, backward, ran, predicted in on_mesh((2,), work):
        assert {"all_reduce": 1} == forward == backward
        assert ["all_reduce", "all_reduce"] == [name for name, _ in ran]
        assert sum(n for _, n in ran) == predicted


def counted(mesh) -> list[tuple[str, int]]:
    """The collectives that this rank ran, and their bytes, by the flight recorder."""
    made = []
    for record in dist.flight_record(mesh.get_group()):
        if record["rank"] == mesh.coordinate[0]:
            name, _, rest = record["call"].partition(" of ")
            kind, _, shape = rest.partition(" ")
            sizes = [int(n) for n in shape[1 : shape.index(")")].split(",") if n.strip()]
            made.append((name.partition("(")[0], td.dtypes.as_dtype(kind).itemsize * int(np.prod(sizes))))
    return made


@pytest.mark.parametrize("old, new", [(S(0), R), (S(1), S(0)), (dist.Partial(), R), (dist.Partial(), S(1))])
def test_bytes_are_those_that_the_recorder_counts(old, new):
    def work(mesh):
        x = sharded(X[0], mesh, [old])
        before = len(counted(mesh))
        with dist.sharding_report() as report:
            x.redistribute(placements=[new])
        return report.lines[0].moved, counted(mesh)[before:]

    for predicted, ran in on_mesh((2,), work):
        if predicted[0][0] == "all_gather":  # the recorder has what goes in, a half of what comes out
            ran = [(name, 2 * n) for name, n in ran]
        assert predicted == ran


def test_sequence_parallel_has_no_all_reduce():
    def work(mesh):
        model = td.nn.Sequential(td.nn.LayerNorm(8), *make_mlp())
        styles = {"0": dist.SequenceParallel(), "1": dist.ColwiseParallel(input_layouts=S(1)),
                  "3": dist.RowwiseParallel(output_layouts=S(1))}  # fmt: skip
        dist.parallelize_module(model, mesh, styles)
        with dist.sharding_report() as report:
            y = model(sharded(X, mesh, [S(1)]))
        return report.collectives, y.placements

    assert ({"all_gather": 1, "reduce_scatter": 1}, (S(1),)) == on_mesh((2,), work)[0]


def test_mixed_precision_accumulation_and_scaling():
    def run(model, x):
        return train(model, x, autocast=True, scaler=td.GradScaler("cpu", init_scale=8.0), accumulate=2)

    def work(mesh):
        return run(dist.parallelize_module(make_mlp(), mesh, plan("tensor")), sharded(X, mesh, [R]))

    expected = run(make_mlp(), td.tensor(X))
    for made in on_mesh((2,), work):
        same(made, expected, rtol=2e-2, atol=2e-2)


def test_plain_tensors_come_in_and_go_out_where_asked():
    def work(mesh):
        model = make_mlp()
        dist.parallelize_module(
            model, mesh, {"0": dist.ColwiseParallel(), "2": dist.RowwiseParallel(use_local_output=True)}
        )
        x = td.tensor(X, requires_grad=True)
        y = model(x)
        assert not isinstance(y, dist.DTensor)
        (y**2).sum().backward()
        return y.detach().numpy(), x.grad.numpy()

    x, model = td.tensor(X, requires_grad=True), make_mlp()
    y = model(x)
    (y**2).sum().backward()
    for value, g in on_mesh((2,), work):
        np.testing.assert_allclose(value, y.detach().numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(g, x.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_embeddings_are_divided_by_rows_or_by_columns():
    tokens = np.array([[0, 5, 2], [4, 4, 1]])

    def loss(model, tokens):
        return (model(tokens) ** 2).sum()

    def work(mesh, style):
        td.manual_seed(0)
        model = dist.parallelize_module(td.nn.Embedding(7, 4), mesh, style)
        value = loss(model, sharded(tokens, mesh, [R]))
        value.backward()
        return value.item(), model.weight.grad.numpy(), model.weight.grad.placements

    td.manual_seed(0)
    model = td.nn.Embedding(7, 4)
    value = loss(model, td.tensor(tokens))
    value.backward()
    for style, placement in ((dist.RowwiseParallel(), S(0)), (dist.ColwiseParallel(), S(1))):
        for made, g, placements in on_mesh((2,), work, style):
            assert (placement,) == placements
            np.testing.assert_allclose(made, value.item(), rtol=1e-5)
            np.testing.assert_allclose(g, model.weight.grad.numpy(), rtol=1e-5)


def test_what_a_plan_cannot_mean_is_refused():
    with pytest.raises(td.ValueRangeError, match="the module has no 'x'"):
        on_mesh((1,), lambda mesh: dist.parallelize_module(make_mlp(), mesh, {"x": dist.ColwiseParallel()}))
    with pytest.raises(td.UnsupportedError, match="a GELU is not divided this way"):
        on_mesh((1,), lambda mesh: dist.parallelize_module(make_mlp(), mesh, {"1": dist.ColwiseParallel()}))
    with pytest.raises(td.ValueRangeError, match="say which one: axis="):
        on_mesh((1, 1), lambda mesh: dist.parallelize_module(make_mlp(), mesh, {"0": dist.ColwiseParallel()}))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", [(2,), (2, 2)])
def test_fully_sharded_on_a_mesh_trains_as_one_process_does(shape, compiled):
    def work():
        mesh = dist.Mesh(shape, ("data", "model")[: len(shape)])
        model = make_mlp()
        for layer in (model[0], model[2]):
            dist.fully_shard(layer, mesh=mesh)
        assert S(0) == model[0].weight.placements[0]
        placements = [S(0), R][: len(shape)]
        return train(model, sharded(X, mesh, placements), compiled)

    expected = train(make_mlp(), td.tensor(X))
    for made in dist.spawn(work, int(np.prod(shape)), engine="threads", timeout=300):
        same(made, expected)


def test_fully_sharded_parameters_are_gathered_forward_and_backward_and_gradients_scattered():
    def work():
        mesh = dist.Mesh(2, "data")
        model = dist.fully_shard(td.nn.Linear(8, 12, bias=False), mesh=mesh)
        x = sharded(X, mesh, [S(0)], requires_grad=True)
        with dist.sharding_report() as forward:
            y = model(x)
        with dist.sharding_report() as backward:
            y.sum().backward()
        return (
            forward.collectives,
            backward.collectives,
            model.weight.grad.placements,
            tuple(model.weight.detach().to_local().shape),
        )

    expected = {"all_gather": 1}, {"all_gather": 1, "reduce_scatter": 1}, (S(0),), (6, 8)
    assert [expected] * 2 == dist.spawn(work, 2, engine="threads", timeout=300)
