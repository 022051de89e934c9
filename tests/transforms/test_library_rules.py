"""Library routines under vmap: one call for the whole batch, the same results as one example after the other."""

import numpy as np
import pytest

import tandem as td
from tandem.nn.graph import Edges, GATConv, GCNConv
from tandem.ops.draws import random_gamma
from tandem.ops.histogram import count_integers
from tandem.transforms import batching


@pytest.fixture
def scanned(monkeypatch):
    """Names of what ran one example after the other."""
    names = []
    real = batching.Batcher.per_example
    monkeypatch.setattr(
        batching.Batcher, "per_example", lambda self, node, *rest: names.append(node.op.name) or real(self, node, *rest)
    )
    return names


def matrices(*shape):
    return td.tensor(np.random.default_rng(3).standard_normal(shape, np.float32))


def symmetric(*shape):
    x = matrices(*shape)
    return x + x.transpose(-1, -2)


CASES = {
    "cummax": (lambda x: tuple(td.cummax(x, 0)), matrices(3, 4, 5)),
    "cummin": (lambda x: tuple(td.cummin(x, -1)), matrices(3, 4, 5)),
    "ldl": (lambda x: tuple(td.linalg.ldl_factor(x)), symmetric(3, 4, 4)),
    "ldl_solve": (lambda x, b: td.linalg.ldl_solve(*td.linalg.ldl_factor(x), b), symmetric(3, 4, 4), matrices(3, 4, 2)),
    "lstsq": (lambda x, y: td.linalg.lstsq(x, y).solution, matrices(3, 5, 2), matrices(3, 5, 2)),
    "pinv": (td.linalg.pinv, matrices(3, 5, 2)),
    "pinv with tolerances": (lambda x, t: td.linalg.pinv(x, rtol=t), matrices(3, 2, 5, 2), td.tensor([0.1, 0.9, 0.01])),
    "pdist": (td.pdist, matrices(3, 5, 2)),
    "linear with weights of their own": (td.linear, matrices(3, 5, 2), matrices(3, 4, 2)),
    "rows of tables of their own": (td.embedding, td.tensor([[0, 1], [1, 2], [2, 0]]), matrices(3, 4, 2)),
    "counts": (lambda x: count_integers(x, 1, 5), td.tensor([[1, 2, 2], [5, 5, 5], [3, 1, 4]])),
}


@pytest.mark.parametrize("name", CASES)
def test_a_routine_is_called_once_for_the_batch(name, scanned):
    fn, *inputs = CASES[name]
    found = td.vmap(fn)(*inputs)
    assert not scanned
    expected = [fn(*(x[i] for x in inputs)) for i in range(3)]
    found = found if isinstance(found, tuple) else (found,)
    for i, row in enumerate(expected):
        for a, b in zip(found, row if isinstance(row, tuple) else (row,), strict=True):
            np.testing.assert_allclose(a[i].numpy(), b.numpy(), rtol=1e-4, atol=1e-4)


def test_numbers_that_are_out_of_range_in_one_example_are_refused():
    with pytest.raises(td.IndexRangeError):
        td.vmap(lambda x: count_integers(x, 1, 5))(td.tensor([[1, 2, 2], [5, 6, 5], [3, 1, 4]]))


@pytest.mark.parametrize("layer", [GCNConv, GATConv])
def test_layers_of_one_graph_take_features_of_many_examples(layer, scanned):
    td.manual_seed(0)
    edges = Edges(td.tensor([[0, 1, 2, 2, 3], [1, 2, 0, 3, 1]]), 4, loops=True)
    convolution = layer(3, 5)
    x = matrices(6, 4, 3).requires_grad_()
    expected = td.stack([convolution(one, edges) for one in x])
    wanted = td.autograd.grad((expected**2).sum(), x)[0]
    found = td.vmap(lambda one: convolution(one, edges))(x)
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(td.autograd.grad((found**2).sum(), x)[0].numpy(), wanted.numpy(), rtol=1e-4, atol=1e-4)
    assert not scanned


def test_samples_of_a_distribution_are_those_of_each_example_or_shared():
    alike = td.full((4, 3), 0.7)

    def sample(concentration):
        return random_gamma(concentration, td.tensor(1.0))

    td.manual_seed(1)
    apart = td.vmap(sample, randomness="different")(alike).numpy()
    assert len(np.unique(apart)) == 12
    td.manual_seed(1)
    np.testing.assert_array_equal(td.vmap(sample, randomness="different")(alike).numpy(), apart)
    shared = td.vmap(sample, randomness="same")(alike).numpy()
    np.testing.assert_array_equal(shared, np.broadcast_to(shared[0], (4, 3)))
    with pytest.raises(td.UnsupportedError, match="random"):
        td.vmap(sample)(alike)


def test_samples_of_a_distribution_under_autobatch_are_those_of_eager_code():
    td.manual_seed(2)
    expected = [random_gamma(td.tensor([0.5, 1.5 + k]), td.tensor(1.0)).numpy() for k in range(5)]
    td.manual_seed(2)
    with td.autobatch() as batch:
        found = [random_gamma(td.tensor([0.5, 1.5 + k]), td.tensor(1.0)) for k in range(5)]
    np.testing.assert_allclose(np.stack([f.numpy() for f in found]), np.stack(expected), rtol=1e-6)
    assert batch.groups < 5
