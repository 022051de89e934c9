"""Distributions of matrices: Wishart, LKJCholesky."""

from __future__ import annotations

import math

import tandem as td
from tandem.distributions import constraints
from tandem.distributions.base import Distribution, ExponentialFamily, parameters
from tandem.distributions.bounded import Beta
from tandem.distributions.multivariate import scale_factor
from tandem.distributions.positive import Chi2
from tandem.errors import ShapeError, ValueRangeError


def _of_matrices(numbers):
    return numbers[..., None, None]


class Wishart(ExponentialFamily):
    """Sums of `df` outer products of normal vectors: positive definite matrices whose mean is df times the covariance.

    The matrix is given by the covariance, its inverse (precision), or a lower triangular factor of the covariance.
    """

    has_rsample = True
    support = constraints.positive_definite
    _mean_carrier_measure = 0

    @property
    def arg_constraints(self):
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def __init__(self, df, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        factor = scale_factor("Wishart", covariance_matrix, precision_matrix, scale_tril)
        size = factor.shape[-1]
        df = td.asarray(df, dtype=factor.dtype, device=factor.device)
        batch = td.broadcast_shapes(df.shape, factor.shape[:-2])
        self.df, self.scale_tril = df.expand(batch), factor.expand(*batch, size, size)
        if not bool((df > size - 1).all()):
            raise ValueRangeError(
                "Wishart", f"df must be greater than {size - 1}, one less than the matrix's size; it is {df}"
            )
        super().__init__(batch, (size, size), validate_args)

    covariance_matrix = property(lambda self: self.scale_tril @ self.scale_tril.mT)
    precision_matrix = property(lambda self: td.cholesky_inverse(self.scale_tril))
    mean = property(lambda self: _of_matrices(self.df) * self.covariance_matrix)

    @property
    def mode(self):
        factor = self.df - self.event_shape[-1] - 1
        return _of_matrices(td.where(factor > 0, factor, math.nan)) * self.covariance_matrix

    @property
    def variance(self):
        v = self.covariance_matrix
        diagonal = td.diagonal(v, 0, -2, -1)
        return _of_matrices(self.df) * (v * v + diagonal[..., :, None] * diagonal[..., None, :])

    def rsample(self, sample_shape=()):
        """By Bartlett's decomposition: roots of Chi2 variables on the diagonal, normal ones below."""
        size, shape = self.event_shape[-1], self.shape_of(sample_shape)
        df = self.df[..., None] - td.arange(size, dtype=self.df.dtype, device=self.df.device)
        roots = td.sqrt(Chi2(df).rsample(sample_shape))
        noise = td.randn(shape, dtype=self.df.dtype, device=self.df.device)
        factor = self.scale_tril @ (td.diag_embed(td.clip(roots, td.finfo(roots.dtype).eps)) + td.tril(noise, -1))
        return factor @ factor.mT

    def _half_log_det(self):
        """Of the covariance, with the 2 of every axis: p log(2) / 2 + log det(scale_tril)."""
        size = self.event_shape[-1]
        return size * math.log(2) / 2 + td.log(td.diagonal(self.scale_tril, 0, -2, -1)).sum(-1)

    def log_prob(self, value):
        value = self._value(value)
        nu, size = self.df, self.event_shape[-1]
        factor = self.scale_tril.expand(*td.broadcast_shapes(value.shape, self.scale_tril.shape))
        trace = td.diagonal(td.cholesky_solve(value.expand(*factor.shape), factor), 0, -2, -1).sum(-1)
        norm = nu * self._half_log_det() + td.mvlgamma(nu / 2, size)
        return (nu - size - 1) / 2 * td.linalg.slogdet(value).logabsdet - trace / 2 - norm

    def entropy(self):
        nu, size = self.df, self.event_shape[-1]
        halves = (nu[..., None] - td.arange(size, dtype=nu.dtype, device=nu.device)) / 2
        spread = (nu - size - 1) / 2 * td.digamma(halves).sum(-1)
        return (size + 1) * self._half_log_det() + td.mvlgamma(nu / 2, size) - spread + nu * size / 2

    @property
    def _natural_params(self):
        return -self.precision_matrix / 2, (self.df - self.event_shape[-1] - 1) / 2

    def _log_normalizer(self, x, y):
        size = self.event_shape[-1]
        half = y + (size + 1) / 2
        return half * (size * math.log(2) - td.linalg.slogdet(-2 * x).logabsdet) + td.mvlgamma(half, size)


class LKJCholesky(Distribution):
    """Lower triangular factors of matrices of correlations, whose density falls with det**(concentration - 1)
    (Lewandowski, Kurowicka and Joe, 2009): even over all such matrices for a concentration of 1."""

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration=1.0, validate_args=None):
        if dim < 2:
            raise ShapeError("LKJCholesky", f"dim is {dim}; it must be at least 2")
        self.dim = dim
        (self.concentration,) = parameters(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def sample(self, sample_shape=()):
        """Row by row on a sphere, whose radius has a Beta distribution (the onion method)."""
        c = self.concentration
        with td.no_grad():
            row = td.arange(self.dim - 1, dtype=c.dtype, device=c.device)
            row = td.cat([row.new_zeros(1), row])
            square = Beta(row + 0.5, c[..., None] + 0.5 * (self.dim - 2) - 0.5 * row).sample(sample_shape)
            u = td.tril(td.randn(self.shape_of(sample_shape), dtype=c.dtype, device=c.device), -1)
            length = td.sqrt((u * u).sum(-1, keepdims=True))
            w = td.sqrt(square)[..., None] * u / td.where(length > 0, length, 1.0)
            rest = td.clip(1 - (w * w).sum(-1), td.finfo(w.dtype).tiny)
            return w + td.diag_embed(td.sqrt(rest))

    def log_prob(self, value):
        value = self._value(value)
        c, less = self.concentration, self.dim - 1
        order = td.arange(2, self.dim + 1, dtype=c.dtype, device=c.device)
        order = 2 * (c - 1)[..., None] + self.dim - order
        inside = (order * td.log(td.diagonal(value, 0, -2, -1)[..., 1:])).sum(-1)
        alpha = c + 0.5 * less
        norm = 0.5 * less * math.log(math.pi) + td.mvlgamma(alpha - 0.5, less) - td.lgamma(alpha) * less
        return inside - norm
