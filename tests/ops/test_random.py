"""Random numbers: reproducible, independent of layout and threads, and distributed as they should be."""

import numpy as np
import pytest
import scipy.stats

import tandem as td

N = 20000


@pytest.fixture(autouse=True)
def seeded():
    td.manual_seed(1234)


def test_seeds_reproduce():
    draws = {
        "rand": lambda g: td.rand(3, 4, generator=g),
        "randn": lambda g: td.randn((3, 4), generator=g),
        "randint": lambda g: td.randint(0, 100, (10,), generator=g),
        "randperm": lambda g: td.randperm(10, generator=g),
        "normal": lambda g: td.normal(1.0, 2.0, (5,), generator=g),
        "uniform": lambda g: td.uniform(1.0, 2.0, (5,), generator=g),
        "bernoulli": lambda g: td.bernoulli(td.full((50,), 0.5), generator=g),
        "multinomial": lambda g: td.multinomial(td.ones(10), 5, generator=g),
        "rand_like": lambda g: td.rand_like(td.zeros(5), generator=g),
        "uniform_": lambda g: td.zeros(5).uniform_(generator=g),
    }
    for name, draw in draws.items():
        a, b = td.Generator(7), td.Generator(7)
        first = draw(a)
        assert td.array_equal(first, draw(b)), name
        assert not td.array_equal(first, draw(a)), name  # the generator has moved on
        assert not td.array_equal(first, draw(td.Generator(8))), name


def test_default_generator():
    td.manual_seed(5)
    state = td.get_rng_state()
    assert state == (5, 0)
    x, y = td.rand(4), td.rand(4)
    assert not td.array_equal(x, y)
    td.set_rng_state(state)
    assert td.array_equal(x, td.rand(4)) and td.array_equal(y, td.rand(4))
    td.manual_seed(5)
    assert td.array_equal(td.rand(8), td.concat([x, y])) and td.initial_seed() == 5
    assert td.default_generator.get_state() == (5, 8)


def test_shapes_and_layouts_do_not_matter():
    def draw(shape):
        return td.rand(shape, generator=td.Generator(3)).numpy().ravel()

    np.testing.assert_array_equal(draw((4, 6)), draw((24,)))
    transposed = td.zeros((6, 4)).T.uniform_(generator=td.Generator(3))
    np.testing.assert_array_equal(transposed.numpy().ravel(), draw((24,)))


def test_large_draws_are_the_same_in_pieces():
    whole = td.rand(200_000, generator=td.Generator(9)).numpy()
    g = td.Generator(9)
    np.testing.assert_array_equal(np.concatenate([td.rand(50_000, generator=g).numpy() for _ in range(4)]), whole)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_uniform(dtype):
    x = td.rand(N, dtype=dtype).numpy().astype(np.float64)
    assert x.min() >= 0 and x.max() < 1
    assert (
        scipy.stats.kstest(
            x + np.random.default_rng(0).uniform(0, 2.0**-8, N) * (dtype == "bfloat16"), "uniform"
        ).pvalue
        > 1e-3
    )
    y = td.uniform(-3.0, 5.0, (N,), dtype=dtype).numpy().astype(np.float64)
    assert y.min() >= -3 and y.max() < 5 and abs(y.mean() - 1) < 0.1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal(dtype):
    x = td.randn(N, dtype=dtype).numpy()
    assert x.dtype == dtype and np.isfinite(x).all()
    assert scipy.stats.kstest(x, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.03
    y = td.normal(2.0, 3.0, (N,), dtype=dtype).numpy()
    assert abs(y.mean() - 2) < 0.1 and abs(y.std() - 3) < 0.1


def test_normal_takes_tensors_and_gradients():
    mean, std = td.tensor([0.0, 10.0], requires_grad=True), td.tensor(0.5, requires_grad=True)
    out = td.normal(mean, std)
    assert out.shape == (2,) and out[1].item() > 5
    out.sum().backward()
    assert mean.grad.tolist() == [1, 1]
    assert np.isclose(std.grad.item(), (out - mean).sum().item() / 0.5)


def test_integers():
    x = td.randint(-3, 7, (N,)).numpy()
    assert x.dtype == np.int64 and x.min() == -3 and x.max() == 6
    assert scipy.stats.chisquare(np.bincount(x + 3)).pvalue > 1e-3
    assert td.randint(10, (2, 3)).shape == (2, 3) and td.randint(5, 6, ()).item() == 5
    wide = td.randint(-(2**62), 2**62, (1000,)).numpy()
    assert abs(wide.astype(float).mean()) < 2**62 * 0.1 and len(set(wide.tolist())) == 1000
    assert (
        td.randint(0, 3, (4,), dtype="uint8").dtype is td.uint8 and td.randint_like(td.zeros(4), 5).dtype is td.float32
    )
    with pytest.raises(td.ValueRangeError, match="no integers"):
        td.randint(3, 3, (2,))


def test_permutations():
    for n in (0, 1, 2, 1000):
        np.testing.assert_array_equal(np.sort(td.randperm(n).numpy()), np.arange(n))
    firsts = np.bincount([td.randperm(4)[0].item() for _ in range(400)], minlength=4)
    assert scipy.stats.chisquare(firsts).pvalue > 1e-3


def test_bernoulli():
    p = td.tensor([0.0, 0.2, 1.0])
    x = td.bernoulli(p.expand(N // 10, 3)).numpy()
    assert (
        set(np.unique(x)) <= {0.0, 1.0}
        and x[:, 0].max() == 0
        and x[:, 2].min() == 1
        and abs(x[:, 1].mean() - 0.2) < 0.05
    )
    assert td.zeros(N).bernoulli_(0.3).mean().item() == pytest.approx(0.3, abs=0.02)
    assert td.zeros(4, dtype="int64").bernoulli_(1.0).tolist() == [1, 1, 1, 1]


def test_multinomial():
    p = td.tensor([0.0, 1.0, 3.0])
    x = td.multinomial(p, N, replacement=True).numpy()
    assert np.bincount(x, minlength=3)[0] == 0 and abs((x == 2).mean() - 0.75) < 0.02
    rows = td.multinomial(td.ones((200, 5)), 5).numpy()
    np.testing.assert_array_equal(np.sort(rows, 1), np.tile(np.arange(5), (200, 1)))
    first = td.multinomial(p.expand(2000, 3), 1).numpy()
    assert abs((first == 2).mean() - 0.75) < 0.05 and (first != 0).all()
    with pytest.raises(td.ValueRangeError, match="without replacement"):
        td.multinomial(p, 4)


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "weights, message",
    [
        ([0.0, 0.0], "all 0"),
        ([1.0, -0.5], "negative number"),
        ([1.0, float("nan")], "NaN"),
        ([float("inf"), 1.0], "infinity"),
        ([[1.0, 2.0], [0.0, 0.0]], "all 0"),
    ],
)
def test_multinomial_refuses_weights_that_are_none(weights, message, compiled, replacement):
    def draw(x):
        return td.multinomial(x, 1, replacement=replacement)

    draw = td.compile(draw) if compiled else draw
    with pytest.raises(td.ValueRangeError, match=f"multinomial: .*{message}"):
        draw(td.tensor(weights)).tolist()
    good = td.ones(*td.tensor(weights).shape)
    assert draw(good).shape == (*good.shape[:-1], 1)


def test_multinomial_of_nothing():
    assert td.multinomial(td.ones(0, 3), 2, replacement=True).shape == (0, 2)
    assert td.multinomial(td.tensor([2.0, 0, 0]), 3, replacement=True).tolist() == [0, 0, 0]
    with pytest.raises(td.ShapeError, match="nothing to sample from"):
        td.multinomial(td.ones(2, 0), 1, replacement=True)


def test_in_place():
    x = td.zeros(N)
    assert x.uniform_(2.0, 4.0) is x and x.min().item() >= 2 and x.max().item() < 4
    assert x.normal_(1.0, 0.5).mean().item() == pytest.approx(1, abs=0.02)
    assert scipy.stats.kstest(x.exponential_(2.0).numpy(), "expon", (0, 0.5)).pvalue > 1e-3
    assert set(x.random_(0, 3).tolist()) == {0.0, 1.0, 2.0}
    w = td.zeros(3, requires_grad=True)
    with td.no_grad():
        w.normal_()
    assert w.requires_grad and w.abs().sum().item() > 0


def test_errors():
    with pytest.raises(td.DTypeError, match="floats"):
        td.rand(3, dtype="int32")
    with pytest.raises(td.ShapeError, match="negative"):
        td.randn(-1)
    with pytest.raises(TypeError, match="Generator"):
        td.rand(3, generator=3)
