"""Operators on sharded tensors that no check_op reaches, which `make sharded-check` therefore leaves out: random numbers, results
whose size depends on values, in-place forms, signals."""

import numpy as np
import pytest

import tandem as td
from tests.check_sharded import check_sharded

F = td.nn.functional
RNG = np.random.default_rng(4)


def make(*shapes, low=0.1, high=0.9):
    return tuple(RNG.uniform(low, high, s).astype(np.float32) for s in shapes)


def in_place(name, *args):
    """x.name(...) on a tensor that the function has made."""

    def run(x):
        return getattr(x * 1, name)(*args)

    return run


NAMES = ("ceil", "deg2rad", "rad2deg", "erfc", "erfinv", "frac")
ELEMENTWISE = {name: (lambda x, name=name: getattr(td, name)(x)) for name in NAMES}
IN_PLACE = {name: in_place(name) for name in ("absolute_", "ceil_", "deg2rad_", "erfc_", "erfinv_", "fix_", "frac_")}
RANDOM = {
    "bernoulli": lambda x: td.bernoulli(x),
    "binomial": lambda x: td.binomial(td.full_like(x, 5.0), x),
    "poisson": lambda x: td.poisson(x * 3),
    "rand_like": lambda x: td.rand_like(x),
    "randint_like": lambda x: td.randint_like(x, 0, 9),
    "multinomial": lambda x: td.multinomial(x, 2),
    "dropout": lambda x: F.dropout(x, 0.4),
    "dropout1d": lambda x: F.dropout1d(x, 0.4),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.4, training=True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.4, training=True),
    **{name: in_place(name) for name in ("bernoulli_", "exponential_", "cauchy_", "log_normal_")},
    "geometric_": in_place("geometric_", 0.4),
}
OTHERS = {
    "adjoint": lambda x: td.adjoint(x),
    "fill": lambda x: td.fill(x, 2.0) + x,
    "masked_select": lambda x: td.masked_select(x, x > 0.5),
    "nonzero": lambda x: td.nonzero(x > 0.5),
    "unique_values": lambda x: td.unique_values(td.round(x * 4)),
    "unique_counts": lambda x: tuple(td.unique_counts(td.round(x * 4))),
    "eq_": lambda x: (x * 1).eq_(x),
    "numel": lambda x: x * td.numel(x),
}


@pytest.mark.parametrize("name", [*ELEMENTWISE, *IN_PLACE, *OTHERS])
def test_operators_give_what_one_rank_gives(name):
    fn = {**ELEMENTWISE, **IN_PLACE, **OTHERS}[name]
    check_sharded(fn, make((5, 4)), grad=name in ELEMENTWISE or name == "masked_select", meshes=((2,), (2, 2)), most=4)


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_those_of_one_rank(name):
    check_sharded(RANDOM[name], make((5, 4)), grad="dropout" in name, meshes=((2,), (2, 2)), most=4)


def test_signals_and_rows_by_number():
    window = td.hann_window(8)
    with td.distributed.implicit_replication():
        check_sharded(
            lambda x: td.view_as_real(td.stft(x, 8, hop_length=4, window=window, return_complex=True)), make((3, 24)),
            grad=True, meshes=((2,),), most=4,
        )  # fmt: skip
    parts = td.tensor([0, 1, 0, 1, 1])
    check_sharded(lambda x: td.dynamic_partition(x, parts, 2), make((5, 3)), grad=True, meshes=((2,), (3,)), most=4)
