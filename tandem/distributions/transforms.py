"""Transforms of values: of numbers, of vectors, of matrices, and of parts of a tensor."""

from __future__ import annotations

import math

import tandem as td
from tandem.distributions import constraints
from tandem.distributions.transform_base import (
    ComposeTransform,
    IndependentTransform,
    ReshapeTransform,
    Transform,
    _InverseTransform,  # noqa: F401  # packages name it here
    identity_transform,
    sum_last,
)
from tandem.errors import ShapeError
from tandem.tensors.methods import Tensor

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
    "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform",
    "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform", "identity_transform",
]  # fmt: skip


def _softplus(x):
    return td.nn.functional.softplus(x)


class _Plain(Transform):
    """A transform without settings: all of a class are equal."""

    def with_cache(self, cache_size: int = 1):
        return self if self._cache_size == cache_size else type(self)(cache_size)

    def __eq__(self, other):
        return type(self) is type(other)

    __hash__ = object.__hash__


class _Rising(_Plain):
    """A bijection of numbers that grows everywhere."""

    domain = constraints.real
    codomain = constraints.real
    bijective = True
    sign = +1


class ExpTransform(_Rising):
    """y = exp(x)."""

    codomain = constraints.positive

    def _call(self, x):
        return td.exp(x)

    def _inverse(self, y):
        return td.log(y)

    def log_abs_det_jacobian(self, x, y):
        return x


class SigmoidTransform(_Rising):
    """y = 1 / (1 + exp(-x)), kept away from 0 and 1."""

    codomain = constraints.unit_interval

    def _call(self, x):
        return _inside(td.sigmoid(x))

    def _inverse(self, y):
        y = _inside(y)
        return td.log(y) - td.log1p(-y)

    def log_abs_det_jacobian(self, x, y):
        return -_softplus(-x) - _softplus(x)


def _inside(y):
    """Within (0, 1), by the smallest step on either side."""
    info = td.finfo(y.dtype)
    return td.clip(y, info.tiny, 1 - info.eps)


class SoftplusTransform(_Rising):
    """y = log(1 + exp(x))."""

    codomain = constraints.positive

    def _call(self, x):
        return _softplus(x)

    def _inverse(self, y):
        return td.log(-td.expm1(-y)) + y

    def log_abs_det_jacobian(self, x, y):
        return -_softplus(-x)


class TanhTransform(_Rising):
    """y = tanh(x). Differentiate through a cache (cache_size=1) rather than the inverse: atanh of a rounded 1 is infinite."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x):
        return td.tanh(x)

    def _inverse(self, y):
        return td.atanh(y)

    def log_abs_det_jacobian(self, x, y):
        return 2 * (math.log(2) - x - _softplus(-2 * x))


class AbsTransform(_Plain):
    """y = |x|; the inverse gives y."""

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x):
        return td.abs(x)

    def _inverse(self, y):
        return y


class PowerTransform(_Rising):
    """y = x ** exponent, for positive x."""

    domain = constraints.positive
    codomain = constraints.positive

    def __init__(self, exponent, cache_size: int = 0):
        super().__init__(cache_size)
        self.exponent = exponent if isinstance(exponent, Tensor) else td.tensor(float(exponent))

    def with_cache(self, cache_size: int = 1):
        return self if self._cache_size == cache_size else PowerTransform(self.exponent, cache_size)

    sign = property(lambda self: td.sign(self.exponent))

    def __eq__(self, other):
        return isinstance(other, PowerTransform) and _same(self.exponent, other.exponent)

    __hash__ = object.__hash__

    def _like(self, x):
        return self.exponent.to(x.dtype)

    def _call(self, x):
        return x ** self._like(x)

    def _inverse(self, y):
        return y ** (1 / self._like(y))

    def log_abs_det_jacobian(self, x, y):
        exponent = self._like(x)
        return td.log(td.abs(exponent)) + (exponent - 1) * td.log(x)

    def forward_shape(self, shape):
        return td.broadcast_shapes(tuple(shape), tuple(self.exponent.shape))

    inverse_shape = forward_shape


class AffineTransform(Transform):
    """y = loc + scale * x."""

    bijective = True

    def __init__(self, loc, scale, event_dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    event_dim = property(lambda self: self._event_dim)

    @property
    def domain(self):
        return constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real

    codomain = domain

    def with_cache(self, cache_size: int = 1):
        if self._cache_size == cache_size:
            return self
        return AffineTransform(self.loc, self.scale, self._event_dim, cache_size)

    def __eq__(self, other):
        return isinstance(other, AffineTransform) and _same(self.loc, other.loc) and _same(self.scale, other.scale)

    __hash__ = object.__hash__

    @property
    def sign(self):
        if isinstance(self.scale, Tensor):
            return td.sign(self.scale)
        return (self.scale > 0) - (self.scale < 0)

    def _call(self, x):
        return self.loc + self.scale * x

    def _inverse(self, y):
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x, y):
        scale = self.scale
        each = td.log(td.abs(scale)) if isinstance(scale, Tensor) else td.full_like(x, math.log(abs(scale)))
        return sum_last(each.expand(x.shape), self._event_dim)

    def forward_shape(self, shape):
        return td.broadcast_shapes(tuple(shape), _shape(self.loc), _shape(self.scale))

    inverse_shape = forward_shape


def _shape(value) -> tuple:
    return tuple(getattr(value, "shape", ()))


def _same(a, b) -> bool:
    """Whether two settings, tensors or numbers, are equal."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return a is b or (_shape(a) == _shape(b) and bool((td.asarray(a) == b).all()))
    return a == b


class CumulativeDistributionTransform(Transform):
    """y = the probability of values up to x, for a distribution of numbers."""

    bijective = True
    codomain = constraints.unit_interval
    sign = +1

    def __init__(self, distribution, cache_size: int = 0):
        super().__init__(cache_size)
        self.distribution = distribution

    domain = property(lambda self: self.distribution.support)

    def with_cache(self, cache_size: int = 1):
        return (
            self if self._cache_size == cache_size else CumulativeDistributionTransform(self.distribution, cache_size)
        )

    def _call(self, x):
        return self.distribution.cdf(x)

    def _inverse(self, y):
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x, y):
        return self.distribution.log_prob(x)


# -- of vectors


class SoftmaxTransform(_Plain):
    """Probabilities in proportion to exp(x); the inverse gives their logarithms."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x):
        return td.softmax(x, -1)

    def _inverse(self, y):
        return td.log(y)

    def forward_shape(self, shape):
        return _at_least("SoftmaxTransform", shape, 1)

    inverse_shape = forward_shape


def _at_least(name: str, shape, count: int) -> tuple:
    if len(shape) < count:
        raise ShapeError(name, f"values are {tuple(shape)}; an event has {count} axes")
    return tuple(shape)


class StickBreakingTransform(_Plain):
    """n numbers to n + 1 probabilities: each takes its share of what those before it left."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def _offset(self, x):
        """So that zeros become equal probabilities."""
        return td.log(x.shape[-1] - td.arange(x.shape[-1], dtype=x.dtype, device=x.device))

    def _call(self, x):
        share = _inside(td.sigmoid(x - self._offset(x)))
        left = td.cumprod(1 - share, -1)
        pad = td.nn.functional.pad
        return pad(share, [0, 1], value=1.0) * pad(left, [1, 0], value=1.0)

    def _inverse(self, y):
        first = y[..., :-1]
        left = td.clip(1 - td.cumsum(first, -1), td.finfo(y.dtype).tiny)
        return td.log(first) - td.log(left) + self._offset(first)

    def log_abs_det_jacobian(self, x, y):
        x = x - self._offset(x)
        return (-x + td.nn.functional.logsigmoid(x) + td.log(y[..., :-1])).sum(-1)

    def forward_shape(self, shape):
        shape = _at_least("StickBreakingTransform", shape, 1)
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape):
        shape = _at_least("StickBreakingTransform", shape, 1)
        return (*shape[:-1], shape[-1] - 1)


class CorrCholeskyTransform(_Plain):
    """n (n - 1) / 2 numbers to the lower triangular factor of an (n, n) matrix of correlations."""

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x):
        size = self.forward_shape(x.shape)[-1]
        eps = td.finfo(x.dtype).eps
        r = _lower(td.clip(td.tanh(x), -1 + eps, 1 - eps), size)
        left = td.cumprod(td.sqrt(1 - r * r), -1)[..., :-1]  # what the columns before leave of a row's length 1
        eye = td.eye(size, dtype=x.dtype, device=x.device)
        return (r + eye) * td.nn.functional.pad(left, [1, 0], value=1.0)

    def _left(self, y):
        return 1 - td.cumsum(y * y, -1)

    def _inverse(self, y):
        rows, columns = td.tril_indices(y.shape[-1], y.shape[-1], -1)
        left = td.nn.functional.pad(self._left(y)[..., :-1], [1, 0], value=1.0)
        return td.atanh(y[..., rows, columns] / td.sqrt(left[..., rows, columns]))

    def log_abs_det_jacobian(self, x, y):
        rows, columns = td.tril_indices(y.shape[-1], y.shape[-1], -2)
        of_rows = 0.5 * td.log(self._left(y)[..., rows, columns]).sum(-1)
        return of_rows - 2 * (x + _softplus(-2 * x) - math.log(2)).sum(-1)

    def forward_shape(self, shape):
        count = _at_least("CorrCholeskyTransform", shape, 1)[-1]
        size = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != count:
            raise ShapeError("CorrCholeskyTransform", f"{count} numbers are not n (n - 1) / 2 for a whole number n")
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape):
        shape = _at_least("CorrCholeskyTransform", shape, 2)
        if shape[-1] != shape[-2]:
            raise ShapeError("CorrCholeskyTransform", f"matrices are {shape}; they must be square")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


def _lower(vector, size: int):
    """Square matrices with the vectors below their diagonals, row by row, and zeros elsewhere."""
    places = [[i * (i - 1) // 2 + j if j < i else vector.shape[-1] for j in range(size)] for i in range(size)]
    padded = td.nn.functional.pad(vector, [0, 1])
    return padded[..., td.tensor(places, device=vector.device)]


# -- of matrices


class LowerCholeskyTransform(_Plain):
    """Square matrices to lower triangular ones with a positive diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x):
        return td.tril(x, -1) + td.diag_embed(td.exp(td.diagonal(x, 0, -2, -1)))

    def _inverse(self, y):
        return td.tril(y, -1) + td.diag_embed(td.log(td.diagonal(y, 0, -2, -1)))


class PositiveDefiniteTransform(_Plain):
    """Square matrices to positive definite ones."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x):
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y):
        return LowerCholeskyTransform().inv(td.linalg.cholesky(y))


# -- of parts


class _Parts(Transform):
    """Several transforms, each for its own slice of an axis."""

    def __init__(self, tseq, dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size)
        self.transforms = [t.with_cache(cache_size) if cache_size else t for t in tseq]
        self.dim = dim

    bijective = property(lambda self: all(t.bijective for t in self.transforms))

    def _each(self, x, apply):
        return self._join([apply(t, part) for t, part in zip(self.transforms, self._split(x), strict=True)])

    def _call(self, x):
        return self._each(x, lambda t, part: t(part))

    def _inverse(self, y):
        return self._each(y, lambda t, part: t.inv(part))


class CatTransform(_Parts):
    """Transforms of the parts of an axis, whose lengths are given (1 each if not)."""

    def __init__(self, tseq, dim: int = 0, lengths=None, cache_size: int = 0):
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise ValueError(f"{len(self.transforms)} transforms but {len(self.lengths)} lengths")

    event_dim = property(lambda self: max(t.event_dim for t in self.transforms))
    length = property(lambda self: sum(self.lengths))
    domain = property(lambda self: constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths))
    codomain = property(lambda self: constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths))

    def with_cache(self, cache_size: int = 1):
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _split(self, x):
        if x.shape[self.dim] != self.length:
            raise ShapeError(
                "CatTransform", f"axis {self.dim} has {x.shape[self.dim]} elements, the parts {self.length}"
            )
        return td.split(x, self.lengths, self.dim)

    def _join(self, parts):
        return td.cat(parts, self.dim)

    def log_abs_det_jacobian(self, x, y):
        each = []
        for t, a, b in zip(self.transforms, self._split(x), self._split(y), strict=True):
            each.append(sum_last(t.log_abs_det_jacobian(a, b), self.event_dim - t.domain.event_dim))
        axis = (self.dim if self.dim < 0 else self.dim - x.ndim) + self.event_dim
        return td.cat(each, axis) if axis < 0 else sum(each[1:], each[0])


class StackTransform(_Parts):
    """Transforms of the slices along an axis."""

    domain = property(lambda self: constraints.stack([t.domain for t in self.transforms], self.dim))
    codomain = property(lambda self: constraints.stack([t.codomain for t in self.transforms], self.dim))

    def with_cache(self, cache_size: int = 1):
        return self if self._cache_size == cache_size else StackTransform(self.transforms, self.dim, cache_size)

    def _split(self, x):
        if x.shape[self.dim] != len(self.transforms):
            raise ShapeError(
                "StackTransform",
                f"axis {self.dim} has {x.shape[self.dim]} slices for {len(self.transforms)} transforms",
            )
        return td.unbind(x, self.dim)

    def _join(self, parts):
        return td.stack(parts, self.dim)

    def log_abs_det_jacobian(self, x, y):
        pairs = zip(self.transforms, self._split(x), self._split(y), strict=True)
        return td.stack([t.log_abs_det_jacobian(a, b) for t, a, b in pairs], self.dim)
