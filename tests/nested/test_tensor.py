"""Batches of different lengths: every result is that of the tensors one by one."""

import copy
import pickle

import numpy as np
import pytest

import tandem as td
from tandem.nested.forms import FORMS
from tandem.nn import functional as F

LENGTHS = [3, 1, 5]


def parts(*rest, seed=0, lengths=LENGTHS):
    rng = np.random.default_rng(seed)
    return [td.tensor(rng.standard_normal((n, *rest)).astype(np.float32)) for n in lengths]


def nested(*rest, seed=0):
    return td.nested.nested_tensor(parts(*rest, seed=seed))


def same(made, expected):
    assert made.is_nested and len(made) == len(expected)
    for a, b in zip(made.unbind(), expected, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_parts_and_padding():
    x = nested(2)
    assert x.shape == (3, 5, 2) and x.values().shape == (9, 2) and x.offsets().tolist() == [0, 3, 4, 9]
    padded = x.to_padded_tensor(-1.0)
    for row, part in zip(padded, parts(2), strict=True):
        n = part.shape[0]
        assert row[:n].tolist() == part.tolist() and (row[n:] == -1).all()
    assert x.to_padded_tensor(0.0, (3, 8, 2)).shape == (3, 8, 2)
    same(td.nested.nested_tensor_from_jagged(x.values(), x.offsets()), parts(2))
    same(td.nested.nested_tensor_from_jagged(x.values(), lengths=x.lengths()), parts(2))
    assert x[1].tolist() == parts(2)[1].tolist()


ONE = {
    "relu": lambda x: x.relu(), "exp": td.exp, "negative": lambda x: -x, "gelu": F.gelu,
    "times a number": lambda x: 2 * x + 1, "sum of two": lambda x: x + x * x, "softmax": lambda x: x.softmax(-1),
    "linear": td.nn.Linear(4, 3), "layer norm": td.nn.LayerNorm(4), "a vector": lambda x: x * td.arange(4.0),
    "matmul": lambda x: x @ td.ones(4, 2), "log_softmax": lambda x: F.log_softmax(x, -1), "mean": lambda x: x.mean(-1),
    "unflatten": lambda x: x.unflatten(-1, (2, 2)), "comparison": lambda x: x > 0, "cat": lambda x: td.cat([x, x], -1),
    "power": lambda x: x**2 + 2.0**x, "hyperbolic": lambda x: td.sinh(x) + td.atan2(x, td.cosh(x)),
    "remainder": lambda x: x % 2.0, "two of a kind": lambda x: td.logaddexp(x, -x), "hardsigmoid": F.hardsigmoid,
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_operators_treat_rows_alike(name):
    same(ONE[name](nested(4)), [ONE[name](p) for p in parts(4)])


def test_cut_along_an_axis_that_is_not_ragged():
    for cut in (lambda x: x.chunk(2, -1), lambda x: x.split([1, 3], -1), lambda x: td.split(x, 3, -1)):
        for i, made in enumerate(cut(nested(4))):
            same(made, [cut(p)[i] for p in parts(4)])
    with pytest.raises(td.errors.UnsupportedError, match="split"):
        nested(4).split([2, 3], 1)


def test_a_dense_tensor_goes_to_every_row_of_its_tensor():
    one_each = td.randn(3, 1, 4)
    same(nested(4) + one_each, [p + o for p, o in zip(parts(4), one_each, strict=True)])
    with pytest.raises(td.ShapeError, match="along the ragged axis it must have size 1"):
        nested(4) + td.ones(3, 5, 4)
    with pytest.raises(td.ShapeError, match="do not go together"):
        nested(4) + td.nested.nested_tensor(parts(4, lengths=[1, 3, 5]))


def test_reductions_over_the_ragged_axis_are_dense():
    x = nested(4)
    for made, expected in (
        (x.sum(1), [p.sum(0) for p in parts(4)]),
        (x.mean(1), [p.mean(0) for p in parts(4)]),
        (x.amax(1), [p.amax(0) for p in parts(4)]),
    ):
        np.testing.assert_allclose(made.numpy(), np.stack([e.numpy() for e in expected]), rtol=1e-5, atol=1e-6)
    same(x.softmax(1), [p.softmax(0) for p in parts(4)])
    assert abs(x.sum().item() - sum(p.sum().item() for p in parts(4))) < 1e-4


def test_gradients_reach_the_tensors_of_the_batch():
    leaves = [p.requires_grad_() for p in parts(4)]
    layer = td.nn.Linear(4, 2)
    layer(td.nested.as_nested_tensor(leaves)).relu().sum().backward()
    got, weight = [p.grad.numpy() for p in leaves], layer.weight.grad.numpy()
    layer.zero_grad()
    again = [p.requires_grad_() for p in parts(4)]
    sum(layer(p).relu().sum() for p in again).backward()
    for a, b in zip(got, again, strict=True):
        np.testing.assert_allclose(a, b.grad.numpy(), rtol=1e-5)
    np.testing.assert_allclose(weight, layer.weight.grad.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_stays_within_each_tensor(causal):
    q, k, v = (nested(2, 4, seed=s).transpose(1, 2) for s in range(3))
    assert q.shape == (3, 2, 5, 4)
    made = td.scaled_dot_product_attention(q, k, v, is_causal=causal)
    expected = [
        td.scaled_dot_product_attention(*(t.transpose(0, 1) for t in one), is_causal=causal)
        for one in zip(parts(2, 4), parts(2, 4, seed=1), parts(2, 4, seed=2), strict=True)
    ]
    same(made, expected)


def test_a_transformer_layer():
    td.manual_seed(0)
    layer = td.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).eval()
    same(layer(nested(4)), [layer(p[None])[0] for p in parts(4)])


def test_losses():
    rng = np.random.default_rng(3)
    targets = [td.tensor(rng.integers(0, 4, n)) for n in LENGTHS]
    loss = F.cross_entropy(nested(4), td.nested.nested_tensor(targets))
    np.testing.assert_allclose(loss.item(), F.cross_entropy(td.cat(parts(4)), td.cat(targets)).item(), rtol=1e-5)
    loss = F.mse_loss(nested(4), nested(4, seed=1))
    np.testing.assert_allclose(loss.item(), F.mse_loss(td.cat(parts(4)), td.cat(parts(4, seed=1))).item(), rtol=1e-5)


def test_lengths_are_data_of_a_program():
    td.manual_seed(0)
    layer = td.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

    @td.compile
    def step(x):
        loss = layer(x).square().mean()
        loss.backward()
        return loss.detach()

    for lengths in ([3, 5], [2, 4, 4], [7, 1]):
        step(td.nested.nested_tensor(parts(4, lengths=lengths)))
    with td.programs() as made:
        for lengths in ([4, 4, 2], [6, 2], [1, 9]):
            x = td.nested.nested_tensor(parts(4, lengths=lengths))
            np.testing.assert_allclose(step(x).item(), layer(x).square().mean().item(), rtol=1e-5)
    assert not made


def test_embeddings_and_loaders():
    samples = [(td.arange(n), n) for n in LENGTHS]
    ((tokens, numbers),) = td.data.DataLoader(samples, batch_size=3, collate_fn=td.nested.nested_collate)
    table = td.nn.Embedding(10, 2)
    same(table(tokens), [table(t) for t, _ in samples])
    assert numbers.tolist() == LENGTHS


def test_what_has_no_nested_form_says_so():
    with pytest.raises(td.UnsupportedError, match=r"cumsum: x is a nested tensor(.|\n)*x.to_padded_tensor\(0.0\)"):
        td.cumsum(nested(4), 1)
    with pytest.raises(td.ShapeError, match="they must agree in dtype and in all axes but the first"):
        td.nested.nested_tensor([td.ones(2, 3), td.ones(2, 4)])
    assert "flip" not in FORMS


def test_copies_and_pickles_hold_the_parts():
    x = nested(4)
    for made in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
        assert made.to_dense().tolist() == x.to_dense().tolist()


def test_nothing_reads_memory_that_is_not_there():
    x = nested(4)
    for read in (memoryview, np.asarray, td.nn.Parameter):
        with pytest.raises((TypeError, ValueError, BufferError, td.TandemError), match="memory"):
            read(x)


def test_nested_tensors_are_saved_and_loaded(tmp_path):
    x = td.nested.nested_tensor([td.ones(2, 3), td.zeros(4, 3)], requires_grad=True)
    td.save([x, x.transpose(1, 2)], tmp_path / "file")
    first, second = td.load(tmp_path / "file")
    assert first.is_nested and first.requires_grad and first.lengths().tolist() == [2, 4]
    assert first.to_padded_tensor(0.0).tolist() == x.to_padded_tensor(0.0).tolist()
    assert second.shape == (2, 3, 4) and second.unbind()[0].shape == (3, 2)
