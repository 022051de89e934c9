"""A pipeline gives the loss and the gradients of one process."""

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist
from tandem.distributed import pipeline as P
from tandem.distributed import stage

RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal((12, 8)).astype(np.float32) for _ in range(2))
W = [RNG.standard_normal((8, 8)).astype(np.float32) * 0.3 for _ in range(4)]


def parameters(count=4):
    return [td.tensor(w, requires_grad=True) for w in W[:count]]


def chain(weights, x, y):
    for w in weights[:-1]:
        x = stage(td.relu(x @ w))
    return ((x @ weights[-1] - y) ** 2).mean()


def skips(weights, x, y):
    """What the first stage gives is read by the second and the third."""
    a = stage(td.tanh(x @ weights[0]))
    b = stage(td.tanh(a @ weights[1]) + a)
    return ((b @ weights[2] + a - y) ** 2).mean()


def tied(weights, x, y):
    """The first weight is read by the first and the last stage."""
    h = stage(td.tanh(x @ weights[0]))
    h = stage(td.tanh(h @ weights[1]))
    return ((h @ weights[0].T + weights[2].sum() - y) ** 2).mean()


def masked(weights, x, y):
    """A mask from an argument that two stages read, a constant, and something without gradients."""
    keep = (y > 0).float()
    h = stage(td.relu(x @ weights[0]) * keep)
    with td.no_grad():
        scale = h.abs().amax()
    return ((h @ weights[1] * keep / (1 + scale.detach()) - y) ** 2).mean()


def alone(fn, count, micro_batches):
    weights = parameters(count)
    losses = []
    n = len(X) // micro_batches
    for m in range(0, len(X), n):
        loss = fn(weights, td.tensor(X[m : m + n]), td.tensor(Y[m : m + n]))
        (loss / micro_batches).backward()
        losses.append(loss.item())
    return np.mean(losses), [w.grad.numpy() for w in weights]


def piped(fn, count, ranks, micro_batches, **options):
    def work():
        weights = parameters(count)
        x, y = td.tensor(X), td.tensor(Y)
        pipe = P.Pipeline(lambda *batch: fn(weights, *batch), (x, y), micro_batches=micro_batches, **options)
        loss = pipe.step(x, y).item()
        assert pipe.evaluate(x, y).item() == pytest.approx(loss)
        owned = [any(p is w for p in pipe.parameters()) for w in weights]
        return loss, [w.grad.numpy() if w.grad is not None else None for w in weights], owned

    return dist.spawn(work, ranks, engine="threads", timeout=300)


def check(fn, count, ranks, micro_batches, **options):
    loss, gradients = alone(fn, count, micro_batches)
    results = piped(fn, count, ranks, micro_batches, **options)
    for i, expected in enumerate(gradients):
        found = [g[i] for _, g, _ in results if g[i] is not None]
        assert found and all(owned[i] == (g[i] is not None) for _, g, owned in results)
        for g in found:
            np.testing.assert_allclose(g, expected, rtol=1e-6, atol=1e-6)
    for mine, _, _ in results:
        assert mine == pytest.approx(loss, rel=1e-6)
    return results


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero_bubble"])
@pytest.mark.parametrize("count, micro_batches", [(1, 2), (2, 3), (3, 6), (4, 2)])
def test_gradients_are_those_of_one_process(schedule, count, micro_batches):
    results = check(chain, count, count, micro_batches, schedule=schedule)
    assert [owned.index(True) for _, _, owned in results] == list(range(count))  # each rank has its weight only


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_gradients_are_bit_equal_where_sums_have_the_same_order(schedule):
    """To those of one stage, whose micro-batches come in the same order."""
    (_, whole, _), *_ = piped(lambda *args: chain(*args), 3, 1, 3, schedule=schedule, stages=1)
    for _, gradients, _ in piped(chain, 3, 3, 3, schedule=schedule):
        for a, b in zip(gradients, whole, strict=True):
            assert a is None or np.array_equal(a, b)


def test_ranks_may_have_several_stages():
    results = check(chain, 4, 2, 4, schedule="interleaved")
    assert [owned for _, _, owned in results] == [[True, False, True, False], [False, True, False, True]]


@pytest.mark.parametrize("schedule", ["1f1b", "zero_bubble"])
@pytest.mark.parametrize("fn, ranks", [(skips, 3), (tied, 3), (masked, 2)])
def test_stages_may_share_values_and_weights(fn, ranks, schedule):
    results = check(fn, 3 if ranks == 3 else 2, ranks, 3, schedule=schedule)
    if fn is tied:
        assert [owned[0] for _, _, owned in results] == [True, False, True]


@pytest.mark.parametrize("schedule", ["1f1b", "zero_bubble"])
def test_activations_may_be_computed_again(schedule):
    check(chain, 3, 3, 3, schedule=schedule, recompute=True)


def test_a_schedule_may_be_written_by_hand():
    F, B = (lambda s, m: P.Action("F", s, m)), (lambda s, m: P.Action("B", s, m))
    rows = (F(0, 0), F(0, 1), B(0, 1), B(0, 0)), (F(1, 0), F(1, 1), B(1, 1), B(1, 0))
    check(chain, 2, 2, 2, schedule=P.Schedule("last first", 2, 2, rows))


def test_stages_of_equal_work_without_marks():
    def deep(weights, x, y):
        for _ in range(3):
            for w in weights:
                x = td.relu(x @ w)
        return ((x - y) ** 2).mean()

    check(deep, 4, 2, 3, stages=2)


class Net(td.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = td.nn.ModuleList([td.nn.Linear(8, 8) for _ in range(4)])
        self.norm = td.nn.BatchNorm1d(8)

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            x = td.relu(block(x))
            x = self.norm(x) if i == 2 else x
        return x


def test_stages_begin_with_modules_and_buffers_are_written():
    def make():
        td.manual_seed(0)
        return Net()

    def work():
        model = make()
        x, y = td.tensor(X), td.tensor(Y)
        loss = lambda x, y: ((model(x) - y) ** 2).mean()
        pipe = P.Pipeline(loss, (x, y), micro_batches=3, stages=[model.blocks[2]])
        found = pipe.step(x, y).item()
        owned = [n for n, p in model.named_parameters() if any(p is q for q in pipe.parameters())]
        gradients = {n: p.grad.numpy() for n, p in model.named_parameters() if n in owned}
        return found, gradients, model.norm.running_mean.numpy(), int(model.norm.num_batches_tracked)

    model, losses = make(), []
    for m in range(0, 12, 4):
        loss = ((model(td.tensor(X[m : m + 4])) - td.tensor(Y[m : m + 4])) ** 2).mean()
        (loss / 3).backward()
        losses.append(loss.item())
    first, second = dist.spawn(work, 2, engine="threads", timeout=300)
    assert first[0] == second[0] == pytest.approx(np.mean(losses), rel=1e-6)
    assert set(first[1]) == {"blocks.0.weight", "blocks.0.bias", "blocks.1.weight", "blocks.1.bias"}
    for n, p in model.named_parameters():
        np.testing.assert_allclose({**first[1], **second[1]}[n], p.grad.numpy(), rtol=1e-5, atol=1e-6, err_msg=n)
    np.testing.assert_allclose(second[2], model.norm.running_mean.numpy(), rtol=1e-5, atol=1e-7)
    assert second[3] == 3 and first[3] == 0  # only the rank that computes it


def test_a_pipeline_of_data_parallel_ranks():
    def work():
        rank = dist.get_rank()
        row, column = divmod(rank, 2)
        pipes = [dist.new_group([2 * r, 2 * r + 1]) for r in range(2)]
        across = [dist.new_group([c, c + 2]) for c in range(2)]
        weights = parameters(2)
        x, y = td.tensor(X[row::2]), td.tensor(Y[row::2])
        pipe = P.Pipeline(
            lambda *batch: chain(weights, *batch), (x, y), micro_batches=3, group=pipes[row], data_group=across[column]
        )
        pipe.step(x, y)
        return weights[column].grad.numpy()

    results = dist.spawn(work, 4, engine="threads", timeout=300)
    weights = parameters(2)
    chain(weights, td.tensor(X), td.tensor(Y)).backward()
    for rank, g in enumerate(results):
        np.testing.assert_allclose(g, weights[rank % 2].grad.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(results[0], results[2])


def test_training_as_one_process_does():
    def work():
        weights = parameters(2)
        x, y = td.tensor(X), td.tensor(Y)
        pipe = P.Pipeline(lambda *batch: chain(weights, *batch), (x, y), micro_batches=2, schedule="zero_bubble")
        optimizer = td.optim.Adam(pipe.parameters(), lr=0.05)
        losses = []
        for _ in range(5):
            losses.append(pipe.step(x, y).item())
            optimizer.step()
            optimizer.zero_grad()
        return losses

    weights = parameters(2)
    optimizer = td.optim.Adam(weights, lr=0.05)
    expected = []
    for _ in range(5):
        loss = chain(weights, td.tensor(X), td.tensor(Y))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        expected.append(loss.item())
    for losses in dist.spawn(work, 2, engine="threads", timeout=300):
        np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_what_cannot_be_piped_is_refused():
    def refused(error, text, fn, ranks=1, batch=(X, Y), **options):
        def work():
            weights = parameters(2)
            args = tuple(map(td.tensor, batch))
            options.setdefault("micro_batches", 2)
            P.Pipeline(lambda *b: fn(weights, *b), args, **options).step(*args[:1])

        with pytest.raises(error, match=text):
            dist.spawn(work, ranks, engine="threads", timeout=300)

    errors = td.errors
    refused(errors.ValueRangeError, "2 stages and 1 ranks", chain)
    refused(errors.ValueRangeError, "cannot be divided evenly among 3 ranks", chain, 3)
    refused(errors.ValueRangeError, "5 equal micro-batches", chain, 2, micro_batches=5)
    refused(errors.ShapeError, "must give the loss, one number", lambda w, x, y: x @ w[0] - y)
    refused(errors.ValueRangeError, "no parameter", lambda w, x, y: (x - y).mean())
    refused(errors.ShapeError, "step was given", lambda w, x, y: (x @ w[0] - y).mean())
    refused(errors.ValueRangeError, "schedule='best'", lambda w, x, y: (x @ w[0] - y).mean(), schedule="best")


def gpt_step(schedule):
    td.manual_seed(0)
    model = td.models.GPT2(vocabulary=50, context=8, layers=2, heads=2, width=16, dropout=0.2)
    tokens = td.tensor(np.random.default_rng(1).integers(0, 50, (4, 9)))
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    loss = lambda x, y: td.nn.functional.cross_entropy(model(x).reshape(-1, 50), y.reshape(-1))
    pipe = P.Pipeline(loss, (x, y), micro_batches=2, stages=2, schedule=schedule)
    td.manual_seed(3)
    piped = pipe.step(x, y).item()
    state = td.get_rng_state()
    found = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    td.manual_seed(3)
    losses = [loss(x[m : m + 2], y[m : m + 2]) for m in (0, 2)]
    assert td.get_rng_state() == state  # as many random numbers were drawn
    sum(losses).backward()
    for name, p in model.named_parameters():
        if name in found:
            np.testing.assert_allclose(found[name], p.grad.numpy() / 2, rtol=1e-4, atol=1e-6, err_msg=name)
    return piped, sum(losses).item() / 2, sorted(found), sorted(n for n, _ in model.named_parameters())


def test_gpt_with_dropout_in_two_processes():
    results = dist.spawn(gpt_step, 2, ("zero_bubble",), timeout=300)
    for piped, whole, _, _ in results:
        assert piped == pytest.approx(whole, rel=1e-5)
    first, second = (set(r[2]) for r in results)
    assert first | second == set(results[0][3])
    assert first & second == {"wte.weight"}  # which both ends read
