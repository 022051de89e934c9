"""Ways from all numbers into a region."""

import pytest

import tandem as td
from tandem import distributions as D

stats = pytest.importorskip("scipy.stats")


c = D.constraints


def test_ways_into_constraints():
    free = td.tensor([[0.3, -1.0], [2.0, 0.5]])
    for region in (
        c.positive,
        c.interval(-1.0, 4.0),
        c.simplex,
        c.less_than(2.0),
        c.lower_cholesky,
        c.positive_definite,
    ):
        assert region.check(D.transform_to(region)(free)).all()
    scale = D.transform_to(D.Normal.arg_constraints["scale"])
    assert (scale.inv(scale(free)) - free).abs().max() < 1e-6
    with pytest.raises(td.UnsupportedError, match="no transform to Boolean"):
        D.biject_to(c.boolean)

    class Even(c.Constraint):
        pass

    D.transform_to.register(Even, lambda region: D.AffineTransform(0.0, 2.0))
    assert D.transform_to(Even())(td.tensor(3.0)).item() == 6
