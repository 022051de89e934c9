"""Distributions of angles."""

import numpy as np
import pytest
from scipy.special import i0e, i1e

import tandem as td
from tandem import distributions as D

stats = pytest.importorskip("scipy.stats")


@pytest.mark.parametrize("concentration", [0.3, 4.0, 40.0])
def test_von_mises_is_scipys(concentration):
    made, theirs = D.VonMises(td.tensor(0.5, dtype=td.float64), concentration), stats.vonmises(concentration, loc=0.5)
    x = np.array([-2.0, 0.1, 0.5, 3.0])
    np.testing.assert_allclose(made.log_prob(td.tensor(x)).numpy(), theirs.logpdf(x), rtol=1e-6)
    assert made.variance.item() == pytest.approx(1 - i1e(concentration) / i0e(concentration), rel=1e-6)


def test_samples_lie_on_the_circle_around_the_mean():
    td.manual_seed(0)
    drawn = D.VonMises(td.tensor(3.0), td.tensor(5.0)).sample((4000,)).numpy()
    assert np.abs(drawn).max() <= np.pi + 1e-6
    assert stats.circmean(drawn, high=np.pi, low=-np.pi) == pytest.approx(3.0, abs=0.05)
