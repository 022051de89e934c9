"""Random numbers of many distributions: moments, determinism, ends of their ranges."""

import numpy as np
import pytest

import tandem as td

R = td.random
N = 20000
# name -> (draw, mean, variance)
MOMENTS = {
    "gamma": (lambda: R.gamma(2.5, 2.0, N), 5.0, 10.0),
    "small_gamma": (lambda: R.gamma(0.3, 1.0, N), 0.3, 0.3),
    "beta": (lambda: R.beta(2.0, 3.0, N), 0.4, 0.04),
    "poisson": (lambda: R.poisson(3.0, N), 3.0, 3.0),
    "large_poisson": (lambda: R.poisson(80.0, N), 80.0, 80.0),
    "binomial": (lambda: R.binomial(20, 0.2, N), 4.0, 3.2),
    "large_binomial": (lambda: R.binomial(300, 0.7, N), 210.0, 63.0),
    "exponential": (lambda: R.exponential(2.0, N), 2.0, 4.0),
    "geometric": (lambda: R.geometric(0.25, N), 4.0, 12.0),
    "log_normal": (lambda: R.log_normal(0.0, 0.5, N), np.exp(0.125), (np.exp(0.25) - 1) * np.exp(0.25)),
    "laplace": (lambda: R.laplace(1.0, 2.0, N), 1.0, 8.0),
    "gumbel": (lambda: R.gumbel(1.0, 2.0, N), 1 + 2 * 0.5772, np.pi**2 / 6 * 4),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_moments(name):
    draw, mean, variance = MOMENTS[name]
    td.manual_seed(3)
    x = draw().numpy().astype(np.float64)
    assert x.shape == (N,)
    assert abs(x.mean() - mean) < 5 * np.sqrt(variance / N)
    assert abs(x.var() / variance - 1) < 0.12
    td.manual_seed(3)
    np.testing.assert_array_equal(x, draw().numpy())


def test_draws_depend_on_seed_and_position_only():
    td.manual_seed(1)
    whole = td.poisson(td.full((50,), 4.0))
    td.manual_seed(1)
    part = td.poisson(td.full((30,), 4.0))
    assert whole[:30].tolist() == part.tolist()
    threads = td.get_num_threads()
    td.set_num_threads(1)
    td.manual_seed(1)
    assert td.poisson(td.full((50,), 4.0)).tolist() == whole.tolist()
    td.set_num_threads(threads)
    generator = td.Generator().manual_seed(1)
    assert td.poisson(td.full((50,), 4.0), generator=generator).tolist() == whole.tolist()
    assert td.poisson(td.full((50,), 4.0), generator=generator).tolist() != whole.tolist()
    rate = td.tensor([[1.0, 50.0], [2.0, 60.0]])
    td.manual_seed(1)
    expected = td.poisson(rate.T.contiguous())
    td.manual_seed(1)
    assert td.poisson(rate.T).tolist() == expected.tolist()


def test_ends_of_ranges():
    assert td.poisson(td.tensor([0.0, -1.0])).isnan().tolist() == [False, True]
    assert td.binomial(td.tensor([0.0, 5.0, 5.0]), td.tensor([0.5, 0.0, 1.0])).tolist() == [0.0, 0.0, 5.0]
    assert R.gamma(td.tensor([0.0, -1.0])).isnan().tolist() == [False, True]
    assert R.gamma(td.ones(3, 1), td.ones(4)).shape == (3, 4)
    with pytest.raises(td.errors.ShapeError, match="do not broadcast"):
        R.gamma(td.ones(3), size=(2,))
    tiny = R.dirichlet(td.full((4,), 1e-3), size=(100,))
    np.testing.assert_allclose(tiny.sum(-1).numpy(), 1, rtol=1e-5)
    np.testing.assert_allclose(
        R.dirichlet(td.tensor([1.0, 2.0, 7.0]), size=(N,)).mean(0).numpy(), [0.1, 0.2, 0.7], atol=0.01
    )


def test_choices():
    td.manual_seed(0)
    counts = td.bincount(R.categorical(td.tensor([0.0, 1.0, 2.0]), size=(N,))).numpy() / N
    np.testing.assert_allclose(counts, np.exp([0, 1, 2]) / np.exp([0, 1, 2]).sum(), atol=0.02)
    assert R.categorical(td.zeros(3, 5), axis=0).shape == (5,)
    assert sorted(R.permutation(6).tolist()) == list(range(6))
    x = td.arange(12).reshape(4, 3)
    rows = R.permutation(x)
    assert sorted(rows[:, 0].tolist()) == [0, 3, 6, 9] and (rows - rows[:, :1]).tolist() == [[0, 1, 2]] * 4
    R.shuffle(x, axis=1)
    assert sorted(x[0].tolist()) == [0, 1, 2]
    assert sorted(R.choice(5, (5,), replace=False).tolist()) == list(range(5))
    assert set(R.choice(td.tensor([7.0, 8.0]), (50,), p=td.tensor([0.0, 1.0])).tolist()) == {8.0}
    with pytest.raises(td.errors.ValueRangeError, match="without replacement"):
        R.choice(3, (4,), replace=False)


def test_filling_in_place():
    td.manual_seed(0)
    x = td.empty(N)
    assert x.log_normal_(0.0, 0.5) is x and abs(x.log().mean().item()) < 0.02
    assert abs(x.cauchy_(2.0, 1.0).median().item() - 2) < 0.1
    assert abs(x.geometric_(0.5).mean().item() - 2) < 0.1 and x.min().item() == 1.0
    assert R.cauchy(size=(3,)).shape == (3,)
    with R.fork_rng():
        state = td.get_rng_state()
        td.rand(5)
    assert td.get_rng_state() == state


def test_every_name_is_there():
    for name in R.__all__:
        assert getattr(R, name) is not None
