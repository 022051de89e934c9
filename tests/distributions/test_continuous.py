"""Continuous distributions against SciPy."""

import math

import numpy as np
import pytest

import tandem as td
from tandem import distributions as D
from tests.distributions.families import CONTINUOUS

stats = pytest.importorskip("scipy.stats")


def name_of(value):
    return type(value).__name__ if isinstance(value, D.Distribution) else ""


@pytest.mark.parametrize(("ours", "theirs", "points"), CONTINUOUS, ids=name_of)
def test_continuous(ours, theirs, points):
    close = lambda a, b: np.testing.assert_allclose(a.numpy(), b, rtol=2e-5, atol=2e-6)
    x = td.tensor(points)
    close(ours.log_prob(x), theirs.logpdf(points))
    close(ours.entropy(), theirs.entropy())
    if math.isfinite(theirs.mean()):
        close(ours.mean, theirs.mean())
        close(ours.variance, theirs.var())
        close(ours.stddev, theirs.std())
    for name, given, expected in (
        ("cdf", x, theirs.cdf(points)),
        ("icdf", td.tensor([0.1, 0.6]), theirs.ppf([0.1, 0.6])),
    ):
        if getattr(type(ours), name) is not getattr(D.Distribution, name):
            close(getattr(ours, name)(given), expected)
