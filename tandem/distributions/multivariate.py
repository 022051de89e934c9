"""Continuous distributions of vectors."""

from __future__ import annotations

import tandem as td
from tandem.distributions.base import LOG_TWO_PI, POSITIVE, Distribution, parameters
from tandem.distributions.continuous import standard_gamma
from tandem.errors import ShapeError, ValueRangeError


class Dirichlet(Distribution):
    """Probabilities of the classes in the last axis."""

    has_rsample = True
    checks = {"concentration": POSITIVE}

    def __init__(self, concentration, validate_args=None):
        (self.concentration,) = parameters(concentration)
        if self.concentration.ndim < 1:
            raise ShapeError("Dirichlet", "concentration must have an axis of classes; it is a number")
        super().__init__(self.concentration.shape[:-1], self.concentration.shape[-1:], validate_args)

    mean = property(lambda self: self.concentration / self.concentration.sum(-1, keepdims=True))

    @property
    def variance(self):
        total = self.concentration.sum(-1, keepdims=True)
        return self.concentration * (total - self.concentration) / (total * total * (total + 1))

    def rsample(self, sample_shape=()):
        x = standard_gamma(self.concentration.expand(self.shape_of(sample_shape)))
        return x / x.sum(-1, keepdims=True)

    def log_prob(self, value):
        a = self.concentration
        inside = td.special.xlogy(a - 1, td.asarray(value)).sum(-1)
        return inside + td.lgamma(a.sum(-1)) - td.lgamma(a).sum(-1)

    def entropy(self):
        a = self.concentration
        total, count = a.sum(-1), a.shape[-1]
        spread = td.lgamma(a).sum(-1) - td.lgamma(total) - (count - total) * td.digamma(total)
        return spread - ((a - 1) * td.digamma(a)).sum(-1)


class MultivariateNormal(Distribution):
    """A normal vector, given by its covariance, its inverse (precision), or a lower triangular factor of the covariance.

    >>> d = td.distributions.MultivariateNormal(td.zeros(2), td.eye(2))
    >>> d.log_prob(td.zeros(2))
    tensor(-1.8379)
    """

    has_rsample = True

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        (loc,) = parameters(loc)
        given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
        if len(given) != 1:
            raise ValueRangeError(
                "MultivariateNormal", "give one of covariance_matrix, precision_matrix and scale_tril"
            )
        matrix, size = given[0], loc.shape[-1] if loc.ndim else 0
        if loc.ndim < 1 or matrix.ndim < 2 or matrix.shape[-2:] != (size, size):
            raise ShapeError(
                "MultivariateNormal",
                f"loc is {loc.shape}, so the matrix must end in ({size}, {size}); it is {matrix.shape}",
            )
        batch = td.broadcast_shapes(loc.shape[:-1], matrix.shape[:-2])
        self.loc = loc.expand(*batch, size)
        if scale_tril is not None:
            factor = scale_tril
        elif covariance_matrix is not None:
            factor = td.linalg.cholesky(covariance_matrix)
        else:
            factor = td.linalg.cholesky(td.linalg.inv(precision_matrix))
        self.scale_tril = factor.expand(*batch, size, size)
        super().__init__(batch, (size,))

    @property
    def covariance_matrix(self):
        return self.scale_tril @ self.scale_tril.mT

    @property
    def precision_matrix(self):
        return td.linalg.inv(self.covariance_matrix)

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)
    variance = property(lambda self: (self.scale_tril * self.scale_tril).sum(-1))

    def rsample(self, sample_shape=()):
        noise = td.randn(self.shape_of(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self.scale_tril @ noise[..., None])[..., 0]

    def _half_log_det(self):
        return td.log(td.diagonal(self.scale_tril, 0, -2, -1)).sum(-1)

    def mahalanobis(self, value):
        """The squared distance of value from loc, in units of the covariance."""
        gap = (value - self.loc)[..., None]
        factor = self.scale_tril.expand(*gap.shape[:-2], *self.scale_tril.shape[-2:])
        z = td.linalg.solve_triangular(factor, gap, upper=False)[..., 0]
        return (z * z).sum(-1)

    def log_prob(self, value):
        return -0.5 * (self.event_shape[0] * LOG_TWO_PI + self.mahalanobis(value)) - self._half_log_det()

    def entropy(self):
        return 0.5 * self.event_shape[0] * (1 + LOG_TWO_PI) + self._half_log_det()
