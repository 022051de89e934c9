"""Arguments by position and under older names, as PyTorch's own Python functions take them."""

import pytest

import tandem as td
import tandem.torch as torch

F = torch.nn.functional


@pytest.mark.parametrize("name", ["relu", "relu6", "selu", "silu", "mish", "hardswish", "hardsigmoid"])
def test_inplace_comes_last(name):
    x = torch.tensor([-1.0, 0.5, 4.0])
    expected = getattr(F, name)(x)
    y = x.clone()
    result = getattr(F, name)(y, True)
    assert torch.equal(result, expected) and torch.equal(y, expected)
    z = x.clone()
    assert torch.equal(getattr(F, name)(z, False), expected) and torch.equal(z, x)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.leaky_relu(x, 0.2, True),
        lambda x: F.elu(x, 1.0, True),
        lambda x: F.celu(x, 1.0, True),
        lambda x: F.hardtanh(x, -1.0, 1.0, True),
        lambda x: F.threshold(x, 0.0, 0.0, True),
        lambda x: F.dropout(x, 1.0, True, True),
        lambda x: F.alpha_dropout(x, 0.5, True, True),
    ],
)
def test_inplace_comes_after_the_other_parameters(call):
    x = torch.tensor([-2.0, 0.5, 4.0])
    y = call(x)
    assert torch.equal(x, y)


def test_other_functions_take_no_more_than_their_parameters():
    with pytest.raises(TypeError, match=r"exp\(\) takes 1 positional arguments but 2 were given"):
        torch.exp(torch.ones(2), True)
    with pytest.raises(TypeError, match=r"relu\(\) takes 1 positional arguments but 3 were given"):
        F.relu(torch.ones(2), True, True)


def test_stacklevel_says_nothing():
    x = torch.ones(2, 2)
    assert torch.equal(F.softmax(x, dim=1, _stacklevel=5), F.softmax(x, 1))


def test_older_parameters():
    assert torch.nn.Hardtanh(min_value=-2.0, max_value=3.0).min_val == -2.0
    table = torch.ones(3, 2)
    layer = torch.nn.Embedding.from_pretrained(table, False, 0, 1.5, 2.0, False, True)
    assert (layer.padding_idx, layer.max_norm, layer.sparse, layer.weight.requires_grad) == (0, 1.5, True, True)
    bag = torch.nn.EmbeddingBag.from_pretrained(table, True, None, 2.0, False, "sum")
    assert bag.mode == "sum" and not bag.weight.requires_grad
    x = torch.zeros(2)
    assert F.gaussian_nll_loss(x, x, torch.ones(2), False, 1e-6, "none").shape == (2,)


def test_older_names_in_place():
    x = torch.empty(2, 2)
    with pytest.warns(FutureWarning, match="constant_"):
        torch.nn.init.constant(x, 3.0)
    assert x.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    p = torch.nn.Parameter(torch.zeros(2))
    p.grad = torch.tensor([3.0, 4.0])
    with pytest.warns(FutureWarning, match="clip_grad_norm_"):
        assert torch.nn.utils.clip_grad_norm([p], 1.0).item() == 5.0


def test_random_fills_with_integers():
    x = torch.empty(1000)
    assert set(x.random_(3).tolist()) == {0.0, 1.0, 2.0}
    assert set(x.random_(5, 7).tolist()) == {5.0, 6.0}
    assert set(x.random_(to=2).tolist()) == {0.0, 1.0}
    assert x.random_().max() > 1000 and x.min() >= 0
    i = torch.empty(100, dtype=torch.int8).random_()
    assert i.min() >= 0
    with pytest.raises(td.ValueRangeError, match="from must be smaller"):
        x.random_(5, 5)


def test_lists_of_indices_are_tuples():
    x = torch.arange(12).reshape(3, 4)
    with pytest.warns(UserWarning, match="tuple"):
        assert x[[[0, 1], [1, 2]]].tolist() == [1, 6]
    with pytest.warns(UserWarning, match="tuple"):
        assert x[[torch.tensor([0, 2]), slice(0, 2)]].tolist() == [[0, 1], [8, 9]]
    with pytest.warns(UserWarning, match="tuple"):
        x[[[0, 1], [1, 2]]] = 50
    assert x.tolist() == [[0, 50, 2, 3], [4, 5, 50, 7], [8, 9, 10, 11]]
    assert x[[0, 2]].tolist() == [[0, 50, 2, 3], [8, 9, 10, 11]]


def test_probabilities_and_shares_are_checked():
    for compiled in (False, True):
        run = td.compile if compiled else lambda f: f
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            run(lambda x: torch.bernoulli(x) + 1)(torch.tensor([0.5, 2.0])).tolist()
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            run(lambda x: torch.quantile(x, 1.5) + 1)(torch.ones(3)).tolist()
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            run(lambda x: F.binary_cross_entropy(x, torch.ones(2)) + 1)(torch.tensor([0.5, -0.1])).tolist()
    assert torch.quantile(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0])).tolist() == [1.0, 2.0]
    assert torch.bernoulli(torch.tensor([0.0, 1.0])).tolist() == [0.0, 1.0]


def test_trace_of_bytes_and_methods_of_older_programs():
    assert torch.trace(torch.tensor([[200, 0], [0, 100]], dtype=torch.uint8)).item() == 300
    assert torch.arange(6).reshape(2, 3).narrow_copy(1, 1, 2).tolist() == [[1, 2], [4, 5]]
    assert torch.ones(2, 1).triangular_solve(2 * torch.eye(2))[0].tolist() == [[0.5], [0.5]]


def test_bytes_are_masks():
    x = torch.arange(4)
    mask = torch.tensor([1, 0, 0, 1], dtype=torch.uint8)
    with pytest.warns(UserWarning, match="mask"):
        assert x[mask].tolist() == [0, 3]
    with pytest.warns(UserWarning, match="mask"):
        x[mask] = 7
    assert x.tolist() == [7, 1, 2, 7]
    with pytest.warns(UserWarning, match="mask"):
        assert torch.arange(8).reshape(2, 4)[:, mask].tolist() == [[0, 3], [4, 7]]


def test_results_of_divisions_may_be_written_to():
    a, b = torch.tensor([6.0], requires_grad=True), torch.tensor([2.0], requires_grad=True)
    y = a / b
    y += 1
    y.sum().backward()
    assert (a.grad.item(), b.grad.item()) == (0.5, -1.5)
    x = torch.tensor([[1.0, 2.0]], requires_grad=True)
    z = F.cosine_similarity(x, torch.tensor([[2.0, 1.0]]))
    z *= 2
    z.sum().backward()
    assert torch.isfinite(x.grad).all()


def test_reversed_tensors_are_copies():
    x = torch.arange(4.0).reshape(2, 2)
    for y in (torch.flip(x, (0,)), x.fliplr(), x.flipud(), torch.rot90(x), torch.rot90(x, 0), torch.rot90(x, 2)):
        y.add_(10)
    assert x.tolist() == [[0.0, 1.0], [2.0, 3.0]]
