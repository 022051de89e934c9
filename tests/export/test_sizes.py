"""What functions compute from sizes in Python stays right for other sizes, or is refused."""

import math

import numpy as np
import pytest

import tandem as td

F = td.nn.functional

FUNCTIONS = {
    "one over a size": lambda x: x.sum() * (1.0 / len(x)),
    "a root": lambda x: x / len(x) ** 0.5,
    "a root of a sum": lambda x: x * math.sqrt(3.0 + len(x)),
    "a logarithm": lambda x: x * math.log(len(x)),
    "one more": lambda x: td.arange(x.shape[0] + 1).sum() + x.sum(),
    "one less": lambda x: x[: x.shape[0] - 1],
    "divided by one less": lambda x: x.sum() / (x.shape[0] * 4 - 1),
    "the last": lambda x: x[x.shape[0] - 1],
    "half": lambda x: x[: x.shape[0] // 2],
    "the larger half": lambda x: x[: -(-x.shape[0] // 2)],
    "a quarter": lambda x: td.topk(x[:, 0], max(1, x.shape[0] // 4))[0],
    "a multiple of eight": lambda x: td.cat([x, td.zeros(8 - x.shape[0] % 8, 4)]),
    "padded to eight": lambda x: F.pad(x, (0, 0, 0, -x.shape[0] % 8)),
    "pairs": lambda x: td.zeros(x.shape[0] * (x.shape[0] - 1) // 2) + x.sum(),
    "parity": lambda x: x * 2 if x.shape[0] % 2 else x * 3,
    "a question": lambda x: x * 2 if x.shape[0] > 10 else x * 3,
    "two questions": lambda x: x[: 2 if x.shape[0] < 12 else 5] * (2.5 if x.shape[0] > 40 else x.shape[0] + 0.5),
    "several at once": lambda x: x[: x.shape[0] // 2] / (x.shape[0] // 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_computed_from_a_size_is_computed_again(name, tmp_path):
    fn, example = FUNCTIONS[name], td.randn(6, 4)
    td.export.save(fn, example, tmp_path / "m", dynamic={"x": (0,)})
    model = td.export.load(tmp_path / "m")
    for n in (5, 6, 10, 11, 12, 13, 16, 40, 41):
        x = td.randn(n, 4)
        np.testing.assert_allclose(model(x).numpy(), fn(x).numpy(), rtol=1e-6, atol=1e-6)


REDUCTIONS = {
    "var": lambda x: x.var(0),
    "std": lambda x: x.std(0),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "layer norm": lambda x: F.layer_norm(x.T, (x.shape[0],)),
    "norm": lambda x: td.linalg.norm(x, dim=0),
    "argmax": lambda x: x.argmax(0),
    "any": lambda x: (x > 2.5).any(0),
    "softmax": lambda x: x.softmax(0),
    "quantile": lambda x: td.quantile(x, 0.5, 0),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_over_an_axis_of_any_size(name, tmp_path):
    """How an operator computes may depend on the size; what it is made of may not, or it cannot be exported."""
    fn = REDUCTIONS[name]
    td.export.save(fn, td.randn(5, 4), tmp_path / "m", dynamic={"x": (0,)})
    model = td.export.load(tmp_path / "m")
    for n in (3, 1500):
        x = td.randn(n, 4)
        np.testing.assert_allclose(model(x).numpy(), fn(x).numpy(), rtol=1e-4, atol=1e-5)


def test_sizes_of_several_axes(tmp_path):
    def fn(x):
        n, t, c = x.shape
        return x.reshape(n * t, c).sum(0) / (n * t) + x[:, t // 2].sum() * (n + 2 * t) + (1 / t) ** 0.5

    td.export.save(fn, td.randn(2, 5, 3), tmp_path / "m", dynamic={"x": (0, 1)})
    model = td.export.load(tmp_path / "m")
    for n, t in ((2, 5), (3, 4), (7, 11)):
        x = td.randn(n, t, 3)
        np.testing.assert_allclose(model(x).numpy(), fn(x).numpy(), rtol=1e-5, atol=1e-5)


def test_axes_that_must_be_divisible(tmp_path):
    """Sizes that a network can have: those of its example, times something."""
    net = td.nn.Sequential(td.nn.Conv2d(1, 2, 2, 2), td.nn.ConvTranspose2d(2, 1, 2, 2))
    td.export.save(lambda x: x + net(x), td.randn(1, 1, 16, 16), tmp_path / "m", dynamic={"x": (0, 2, 3)})
    model = td.export.load(tmp_path / "m")
    x = td.randn(2, 1, 12, 20)
    np.testing.assert_allclose(model(x).detach().numpy(), (x + net(x)).detach().numpy(), atol=1e-6)
    with pytest.raises(td.TandemError):
        model(td.randn(2, 1, 13, 20))


REFUSED = {
    "other operators": (
        lambda x: x.exp() if x.shape[0] > 10 else x.sin(),
        "it calls exp at .* with the first and sin at",
    ),
    "a loop": (lambda x: sum(x[i] for i in range(len(x))), "calls"),
    "a number without a formula": (lambda x: x * math.gamma(1 + 1 / len(x)), "is given"),
    "a table": (lambda x: x + td.tensor(np.arange(len(x), dtype=np.float32)).sum(), "makes other tensors"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_depends_on_a_size_in_another_way_is_refused(name, tmp_path):
    fn, why = REFUSED[name]
    with pytest.raises(td.UnsupportedError, match=f"(?s)axis 0 of 'x' has.*{why}"):
        td.export.save(fn, td.randn(6, 4), tmp_path / "m", dynamic={"x": (0,)})
    with pytest.warns(
        UserWarning, match="so these are fixed\n  why: export: the function computes something else where"
    ):
        td.export.save(fn, td.randn(6, 4), tmp_path / "m")
    x = td.randn(6, 4)
    np.testing.assert_allclose(td.export.load(tmp_path / "m")(x).numpy(), fn(x).numpy(), rtol=1e-6, atol=1e-6)


def test_axes_that_may_differ_do(tmp_path):
    td.export.save(lambda a, b: a.sum() / len(a) + b.sum() / len(b), (td.ones(4, 2), td.ones(4, 3)), tmp_path / "m")
    model = td.export.load(tmp_path / "m")
    assert 5.0 == model(td.ones(7, 2), td.ones(9, 3)).item()


def test_axes_that_python_code_wants_equal_must_be(tmp_path):
    """The check is Python's, and is not part of the graph."""

    def fn(image, grid, table):
        return F.grid_sample(image, grid, align_corners=False).sum() + table.sum()

    args = td.randn(3, 1, 4, 4), td.rand(3, 2, 2, 2), td.ones(3)
    model = td.export.freeze(fn, args)
    x = td.randn(5, 1, 4, 4), td.rand(5, 2, 2, 2), td.ones(7)
    np.testing.assert_allclose(model(*x).numpy(), fn(*x).numpy(), rtol=1e-6)
    with pytest.raises(td.ShapeError, match="sizes that must be equal differ by 1"):
        model(x[0], td.rand(4, 2, 2, 2), x[2])


def test_another_way_for_few_rows_is_refused(tmp_path):
    for fn, few in (
        (lambda x: x * 2 if x.shape[0] > 3 else (x - 1).exp(), 3),
        (lambda x: x.squeeze(0), 1),
        (lambda x: td.rot90(x, min(x.shape[0], 3)), 2),  # told apart by what is no tensor
        (lambda x: x.split(max(x.shape[0] - 2, 1))[1].std(), 3),  # by another number of parts, and 1 is among the sizes
        (lambda x: x.narrow(0, 1, 3), 3),
    ):
        td.export.save(fn, td.randn(6, 4), tmp_path / "m", dynamic={"x": (0,)})
        model = td.export.load(tmp_path / "m")
        for n in (few + 1, 6, 7, 20):
            x = td.randn(n, 4)
            np.testing.assert_allclose(model(x).numpy(), fn(x).numpy(), rtol=1e-5, atol=1e-6)
        with pytest.raises(
            td.ShapeError, match=rf"other sizes: axis 0 of 'x' must (have|not have) .*{few}|{few + 1} elements"
        ):
            model(td.randn(few, 4))


EVERYWHERE = {
    "from the end": lambda x: x[-(x.shape[0] // 3) :],
    "up to the end": lambda x: x[: -(x.shape[0] // 2)],
    "beyond another axis": lambda x: x[..., max(x.shape[0] // 4, 1) :],
    "from nothing on": lambda x: x[..., -(x.shape[0] // 2) : max(x.shape[0] // 4, 1)],
    "at most": lambda x: x[: min(x.shape[0], 3)] / max(x.shape[0] - 3, 1),
    "a distance": lambda x: td.arange(abs(x.shape[0] - 4)) + x.sum(),
    "linspace": lambda x: td.linspace(3, 1, x.shape[0]) + x.sum(),
    "linspace without its end": lambda x: td.linspace(0, 1, x.shape[0] - 1, endpoint=False) + x.sum(),
    "window": lambda x: td.hann_window(x.shape[0]) + x.sum(),
    "padded or cut": lambda x: F.pad(x, (0, 0, x.shape[0] - 2, 0)),
    "cut at one end, padded at the other": lambda x: F.pad(x, (-(x.shape[0] - 1), x.shape[0] - 1)),
    "a diagonal": lambda x: x.diagonal(1 - x.shape[0] // 2),
    "on a diagonal": lambda x: td.diag_embed(x.sum(1), 2 - x.shape[0]),
    "chosen from the end": lambda x: x[-(x.shape[0] // 2)],
    "narrow": lambda x: x.narrow(0, -(x.shape[0] // 2), x.shape[0] // 3),
    "shifted": lambda x: td.fft.fftshift(x, 0),
    "repeated": lambda x: x[:, 0].repeat_interleave(x.shape[0] // 2 + 1),
    "expanded": lambda x: x[0].expand(x.shape[0] // 2 + 1, 4),
    "among some": lambda x: td.isin(x.round(), x[: x.shape[0] // 2].round()),
    "among all": lambda x: td.isin(x, x[::2]),
    "distances": lambda x: td.cdist(x, x[: x.shape[0] // 2 + 1]),
}


@pytest.mark.parametrize("name", EVERYWHERE)
def test_bounds_that_lie_otherwise_for_few_rows(name, tmp_path):
    """They were normalised as for many rows, and results were wrong without a word."""
    fn = EVERYWHERE[name]
    td.export.save(fn, td.randn(6, 4), tmp_path / "m", dynamic={"x": (0,)})
    model = td.export.load(tmp_path / "m")
    for n in (1, 2, 3, 4, 5, 8, 17, 40):
        x = td.randn(n, 4)
        made, wanted = model(x).numpy(), fn(x).numpy()
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-3 if name == "distances" else 1e-5)


PAIRS = {
    "as many as the other": lambda a, b: a[: b.shape[0]],
    "the last of them": lambda a, b: a[-b.shape[0] :],
    "the shorter": lambda a, b: a[: min(a.shape[0], b.shape[0])] * 2,
    "padded to the longer": lambda a, b: F.pad(a, (0, 0, 0, max(b.shape[0] - a.shape[0], 0))),
    "by the longer": lambda a, b: a.sum() / max(a.shape[0], b.shape[0]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_sizes_of_two_arguments_in_either_order(name, tmp_path):
    fn = PAIRS[name]
    td.export.save(fn, (td.randn(6, 4), td.randn(3, 4)), tmp_path / "m", dynamic={"x0": (0,), "x1": (0,)})
    model = td.export.load(tmp_path / "m")
    for n, m in ((1, 1), (1, 3), (2, 5), (5, 2), (8, 3), (3, 8), (17, 17)):
        a, b = td.randn(n, 4), td.randn(m, 4)
        np.testing.assert_allclose(model(a, b).numpy(), fn(a, b).numpy(), rtol=1e-5, atol=1e-6)
