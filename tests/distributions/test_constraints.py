"""Regions of values."""

import pytest

import tandem as td
from tandem import distributions as D

stats = pytest.importorskip("scipy.stats")


c = D.constraints


def test_regions():
    x = td.tensor([-1.0, 0.0, 0.5, 2.0])
    assert c.nonnegative_integer.check(x).tolist() == [False, True, False, True]
    assert c.half_open_interval(0.0, 2.0).check(x).tolist() == [False, True, True, False]
    assert c.boolean.check(x).tolist() == [False, True, False, False]
    assert c.independent(c.real, 1).check(x).item()
    assert c.one_hot.check(td.eye(3)).all()
    assert c.corr_cholesky.check(D.LKJCholesky(4, 1.5).sample((3,))).all()
    assert not c.positive_definite.check(-td.eye(2))
    assert repr(c.positive) == "greater_than(lower_bound=0.0)"
    assert c.is_dependent(D.Uniform.support)
    assert not c.is_dependent(D.Uniform(0.0, 1.0).support)


def test_values_are_checked_if_asked():
    d = D.Gamma(1.0, 1.0, validate_args=True)
    with pytest.raises(td.ValueRangeError, match="the value must be at least 0"):
        d.log_prob(td.tensor(-1.0))
    with pytest.raises(td.ValueRangeError, match="end in the event's shape"):
        D.Dirichlet(td.ones(3), validate_args=True).log_prob(td.ones(2) / 2)
    D.Distribution.set_default_validate_args(True)
    try:
        with pytest.raises(td.ValueRangeError, match="scale must be"):
            D.Normal(0.0, -1.0)
    finally:
        D.Distribution._validate_args = None


def test_programs_that_follow_pytorch_are_checked_unless_told_otherwise():
    program = "import tandem.torch as torch\ndef make(**kwargs): return torch.distributions.Normal(0.0, -1.0, **kwargs)"
    names = {"__name__": "program"}
    exec(program, names)
    with pytest.raises(ValueError, match="scale must be"):
        names["make"]()
    assert names["make"](validate_args=False).scale.item() == -1.0
    assert D.Normal(0.0, -1.0).scale.item() == -1.0  # this module does not follow it
