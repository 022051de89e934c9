"""SyncBatchNorm: on several ranks it is the batch normalisation of one that has all samples."""

import copy

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist
from tandem import nn

RNG = np.random.default_rng(2)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("sizes", [(3, 3), (4, 1, 2), (3, 0)])
def test_ranks_normalise_by_the_statistics_of_all_samples(sizes, compiled):
    """Values, gradients and running statistics; a rank may have fewer samples than another, or none."""
    parts = [RNG.normal(1.0, 2.0, (n, 4, 5)) for n in sizes]
    weights = [RNG.normal(size=p.shape) for p in parts]
    layer = nn.BatchNorm1d(4, momentum=0.3).double()

    def run(made, x, c):
        y = made(x)
        (td.sin(y) * c).sum().backward()
        return y

    whole = td.tensor(np.concatenate(parts), requires_grad=True)
    y = run(layer, whole, td.tensor(np.concatenate(weights)))

    def work():
        r = dist.get_rank()
        made = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(4, momentum=0.3).double())
        x = td.tensor(parts[r], requires_grad=True)
        step = td.compile(run) if compiled else run
        y = step(made, x, td.tensor(weights[r]))
        for g in (made.weight.grad, made.bias.grad):
            dist.all_reduce(g)
        own = made.running_mean, made.running_var, made.weight.grad, made.bias.grad, made.num_batches_tracked
        return y.detach().numpy(), x.grad.numpy(), [t.numpy() for t in own]

    results = dist.spawn(work, len(sizes), engine="threads", timeout=300)
    np.testing.assert_allclose(y.detach().numpy(), np.concatenate([r[0] for r in results]), atol=1e-12)
    np.testing.assert_allclose(whole.grad.numpy(), np.concatenate([r[1] for r in results]), atol=1e-12)
    expected = layer.running_mean, layer.running_var, layer.weight.grad, layer.bias.grad, layer.num_batches_tracked
    for *_, own in results:
        for e, made in zip(expected, own, strict=True):
            np.testing.assert_allclose(e.numpy(), made, atol=1e-12)


def test_a_group_of_its_own_and_evaluation_by_running_statistics():
    x = RNG.normal(size=(4, 2, 3)).astype(np.float32)

    def work():
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        r = dist.get_rank()
        layer = copy.deepcopy(nn.SyncBatchNorm(2, process_group=pairs[r // 2], momentum=None))
        y = layer(td.tensor(x[r : r + 1]))
        layer.eval()
        return y.detach().numpy(), layer(td.tensor(x[:1])).detach().numpy(), layer.running_mean.numpy()

    results = dist.spawn(work, 4, engine="threads", timeout=300)
    for pair in (slice(0, 2), slice(2, 4)):
        expected = nn.BatchNorm1d(2)(td.tensor(x[pair])).detach().numpy()
        np.testing.assert_allclose(expected, np.concatenate([y for y, *_ in results[pair]]), atol=1e-5)
        for _, evaluated, mean in results[pair]:
            np.testing.assert_allclose(x[pair].mean((0, 2)), mean, atol=1e-6)
            assert evaluated.shape == (1, 2, 3)
