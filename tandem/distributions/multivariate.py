"""Continuous distributions of vectors."""

from __future__ import annotations

from functools import cached_property

import tandem as td
from tandem.distributions import constraints
from tandem.distributions.base import LOG_TWO_PI, Distribution, ExponentialFamily, parameters
from tandem.distributions.positive import standard_gamma
from tandem.errors import ShapeError, ValueRangeError


class Dirichlet(ExponentialFamily):
    """Probabilities of the classes in the last axis."""

    has_rsample = True
    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex

    def __init__(self, concentration, validate_args=None):
        (self.concentration,) = parameters(concentration)
        if self.concentration.ndim < 1:
            raise ShapeError("Dirichlet", "concentration must have an axis of classes; it is a number")
        super().__init__(self.concentration.shape[:-1], self.concentration.shape[-1:], validate_args)

    mean = property(lambda self: self.concentration / self.concentration.sum(-1, keepdims=True))

    @property
    def mode(self):
        above = td.clip(self.concentration - 1, 0.0)
        corner = (self.concentration < 1).all(-1, keepdims=True)  # peaks in the corners: the class that has most
        most = td.nn.functional.one_hot(self.concentration.argmax(-1), self.event_shape[0]).to(above.dtype)
        return td.where(corner, most, above / td.where(corner, 1.0, above.sum(-1, keepdims=True)))

    _natural_params = property(lambda self: (self.concentration,))

    @property
    def _mean_carrier_measure(self):
        total = self.concentration.sum(-1, keepdims=True)
        return -(td.digamma(self.concentration) - td.digamma(total)).sum(-1)

    def _log_normalizer(self, x):
        return td.lgamma(x).sum(-1) - td.lgamma(x.sum(-1))

    @property
    def variance(self):
        total = self.concentration.sum(-1, keepdims=True)
        return self.concentration * (total - self.concentration) / (total * total * (total + 1))

    def rsample(self, sample_shape=()):
        x = standard_gamma(self.concentration.expand(self.shape_of(sample_shape)))
        return x / x.sum(-1, keepdims=True)

    def log_prob(self, value):
        value = self._value(value)
        a = self.concentration
        inside = td.special.xlogy(a - 1, value).sum(-1)
        return inside + td.lgamma(a.sum(-1)) - td.lgamma(a).sum(-1)

    def entropy(self):
        a = self.concentration
        total, count = a.sum(-1), a.shape[-1]
        spread = td.lgamma(a).sum(-1) - td.lgamma(total) - (count - total) * td.digamma(total)
        return spread - ((a - 1) * td.digamma(a)).sum(-1)


def scale_factor(name: str, covariance_matrix, precision_matrix, scale_tril):
    """The lower triangular factor of a covariance, which is given in one of three ways."""
    given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
    if len(given) != 1:
        raise ValueRangeError(name, "give one of covariance_matrix, precision_matrix and scale_tril")
    if given[0].ndim < 2 or given[0].shape[-1] != given[0].shape[-2]:
        raise ShapeError(name, f"the matrix must be square; it is {given[0].shape}")
    if scale_tril is not None:
        return scale_tril
    if covariance_matrix is not None:
        return td.linalg.cholesky(covariance_matrix)
    # The factor of an inverse without the inverse: turned by 180 degrees, an upper factor of the precision is a lower one.
    turned = td.linalg.cholesky(td.flip(precision_matrix, (-2, -1)))
    upper = td.flip(turned, (-2, -1)).mT
    eye = td.eye(upper.shape[-1], dtype=upper.dtype, device=upper.device).expand(*upper.shape)
    return td.linalg.solve_triangular(upper, eye, upper=False)


class MultivariateNormal(Distribution):
    """A normal vector, given by its covariance, its inverse (precision), or a lower triangular factor of the covariance.

    >>> d = td.distributions.MultivariateNormal(td.zeros(2), td.eye(2))
    >>> d.log_prob(td.zeros(2))
    tensor(-1.8379)
    """

    has_rsample = True
    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        (loc,) = parameters(loc)
        factor = scale_factor("MultivariateNormal", covariance_matrix, precision_matrix, scale_tril)
        size = loc.shape[-1] if loc.ndim else 0
        if loc.ndim < 1 or factor.shape[-2:] != (size, size):
            raise ShapeError(
                "MultivariateNormal",
                f"loc is {loc.shape}, so the matrix must end in ({size}, {size}); it is {factor.shape}",
            )
        batch = td.broadcast_shapes(loc.shape[:-1], factor.shape[:-2])
        self.loc, self._unbroadcasted_scale_tril = loc.expand(*batch, size), factor
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        for name, matrix in given.items():
            if matrix is not None:
                self.__dict__[name] = matrix.expand(*batch, size, size)
        super().__init__(batch, (size,), validate_args)

    def _for_each(self, matrix):
        return matrix.expand(*self._batch_shape, *matrix.shape[-2:])

    # The factor as it was given, under PyTorch's private name, which classes made of this one write and read.
    scale_tril = cached_property(lambda self: self._for_each(self._unbroadcasted_scale_tril))
    covariance_matrix = cached_property(
        lambda self: self._for_each(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)
    )
    precision_matrix = cached_property(lambda self: self._for_each(td.cholesky_inverse(self._unbroadcasted_scale_tril)))

    def expand(self, batch_shape, _instance=None):
        made = super().expand(batch_shape)
        made._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        return made

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
        value = self._value(value)
        return -0.5 * (self.event_shape[0] * LOG_TWO_PI + self.mahalanobis(value)) - self._half_log_det()

    def entropy(self):
        return 0.5 * self.event_shape[0] * (1 + LOG_TWO_PI) + self._half_log_det()


class LowRankMultivariateNormal(Distribution):
    """A normal vector with covariance cov_factor @ cov_factor.T + diag(cov_diag): (n, rank) and (n,), for n much above the rank.

    Densities and divergences need factors of (rank, rank) matrices only.
    """

    has_rsample = True
    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector

    def __init__(self, loc, cov_factor, cov_diag, validate_args=None):
        size = loc.shape[-1] if loc.ndim else 0
        if loc.ndim < 1 or cov_factor.ndim < 2 or cov_factor.shape[-2] != size or cov_diag.shape[-1:] != (size,):
            raise ShapeError(
                "LowRankMultivariateNormal",
                f"loc is {loc.shape}, cov_factor {cov_factor.shape} and cov_diag {cov_diag.shape}; "
                f"they must end in ({size},), ({size}, rank) and ({size},)",
            )
        batch = td.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        self.loc, self.cov_diag = loc.expand(*batch, size), cov_diag.expand(*batch, size)
        self.cov_factor = cov_factor.expand(*batch, size, cov_factor.shape[-1])
        # The factor of 1 + W' W / d, by which inverse and determinant follow (Woodbury).
        scaled = self.cov_factor.mT / self.cov_diag[..., None, :]
        eye = td.eye(cov_factor.shape[-1], dtype=loc.dtype, device=loc.device)
        self._capacitance_tril = td.linalg.cholesky(scaled @ self.cov_factor + eye)
        super().__init__(batch, (size,), validate_args)

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)
    variance = property(lambda self: (self.cov_factor * self.cov_factor).sum(-1) + self.cov_diag)
    covariance_matrix = property(lambda self: self.cov_factor @ self.cov_factor.mT + td.diag_embed(self.cov_diag))
    scale_tril = property(lambda self: td.linalg.cholesky(self.covariance_matrix))

    @property
    def precision_matrix(self):
        root = self.whitened(self.cov_diag, None)
        return td.diag_embed(1 / self.cov_diag) - root.mT @ root

    def whitened(self, diag, values):
        """A with A' A = W' C^-1 W over the diagonal: what the low-rank part takes away of the inverse; times `values` if given."""
        scaled = self.cov_factor.mT / diag[..., None, :]
        root = td.linalg.solve_triangular(self._capacitance_tril, scaled, upper=False)
        return root if values is None else root @ values

    def rsample(self, sample_shape=()):
        like = {"dtype": self.loc.dtype, "device": self.loc.device}
        few = td.randn((*sample_shape, *self.batch_shape, self.cov_factor.shape[-1]), **like)
        each = td.randn(self.shape_of(sample_shape), **like)
        return self.loc + (self.cov_factor @ few[..., None])[..., 0] + td.sqrt(self.cov_diag) * each

    def _half_log_det(self):
        small = td.log(td.diagonal(self._capacitance_tril, 0, -2, -1)).sum(-1)
        return small + 0.5 * td.log(self.cov_diag).sum(-1)

    def mahalanobis(self, value):
        """The squared distance of value from loc, in units of the covariance."""
        gap = value - self.loc
        away = self.whitened(self.cov_diag, gap[..., None])[..., 0]
        return (gap * gap / self.cov_diag).sum(-1) - (away * away).sum(-1)

    def log_prob(self, value):
        value = self._value(value)
        return -0.5 * (self.event_shape[0] * LOG_TWO_PI + self.mahalanobis(value)) - self._half_log_det()

    def entropy(self):
        return 0.5 * self.event_shape[0] * (1 + LOG_TWO_PI) + self._half_log_det()
