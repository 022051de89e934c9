"""What every transform of values has, and transforms made of others: inverse, composition, more axes, other shapes."""

from __future__ import annotations

import math
import weakref

from tandem.distributions import constraints
from tandem.errors import ShapeError, UnsupportedError


def sum_last(x, count: int):
    """The sum over the last `count` axes."""
    return x.sum(tuple(range(x.ndim - count, x.ndim))) if count else x


class Transform:
    """A map of values that knows the logarithm of how much it stretches space.

    Subclasses set `domain`, `codomain` and, if it can be undone exactly, `bijective`; they define `_call`, `_inverse` and
    `log_abs_det_jacobian`, and where a number maps to a number `sign`: +1 if it grows, -1 if it falls. With cache_size=1 the last
    pair is remembered, so that the inverse of a value that was just made is the very input.

    >>> t = td.distributions.ExpTransform()
    >>> t(td.tensor(0.0)), t.inv(td.tensor(1.0)), t.log_abs_det_jacobian(td.tensor(2.0), None)
    (tensor(1.), tensor(0.), tensor(2.))
    """

    bijective = False
    domain: constraints.Constraint
    codomain: constraints.Constraint

    def __init__(self, cache_size: int = 0):
        if cache_size not in (0, 1):
            raise ValueError(f"cache_size is {cache_size}; it must be 0 or 1")
        self._cache_size = cache_size
        self._last = None
        self._inv = None
        super().__init__()

    @property
    def event_dim(self) -> int:
        if self.domain.event_dim != self.codomain.event_dim:
            raise ValueError("events of domain and codomain differ; ask domain.event_dim and codomain.event_dim")
        return self.domain.event_dim

    @property
    def inv(self) -> Transform:
        """The way back, as a transform; its own inverse is this one."""
        inverse = self._inv() if self._inv is not None else None
        if inverse is None:
            inverse = _InverseTransform(self)
            self._inv = weakref.ref(inverse)
        return inverse

    @property
    def sign(self):
        raise UnsupportedError(type(self).__name__, "it neither grows nor falls everywhere")

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same transform with another cache."""
        if self._cache_size == cache_size:
            return self
        raise UnsupportedError(type(self).__name__, "with_cache is not defined")

    def __call__(self, x):
        if self._cache_size == 0:
            return self._call(x)
        if self._last is not None and self._last[0] is x:
            return self._last[1]
        y = self._call(x)
        self._last = x, y
        return y

    def _inv_call(self, y):
        if self._cache_size == 0:
            return self._inverse(y)
        if self._last is not None and self._last[1] is y:
            return self._last[0]
        x = self._inverse(y)
        self._last = x, y
        return x

    def _call(self, x):
        raise UnsupportedError(type(self).__name__, "_call is not defined")

    def _inverse(self, y):
        raise UnsupportedError(type(self).__name__, "there is no inverse")

    def log_abs_det_jacobian(self, x, y):
        """log |det dy/dx|, event by event."""
        raise UnsupportedError(type(self).__name__, "the determinant of its derivative is not known")

    def forward_shape(self, shape):
        """The shape of the result for arguments of a shape."""
        return tuple(shape)

    def inverse_shape(self, shape):
        """The shape of arguments for results of a shape."""
        return tuple(shape)

    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__

    def __getstate__(self):
        return {**self.__dict__, "_inv": None, "_last": None}

    def __repr__(self):
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    def __init__(self, transform: Transform):
        super().__init__()
        self._forward = transform

    bijective = property(lambda self: self._forward.bijective)
    domain = property(lambda self: self._forward.codomain)
    codomain = property(lambda self: self._forward.domain)
    sign = property(lambda self: self._forward.sign)
    inv = property(lambda self: self._forward)

    def with_cache(self, cache_size: int = 1):
        return self._forward.with_cache(cache_size).inv

    def __eq__(self, other):
        return isinstance(other, _InverseTransform) and self._forward == other._forward

    __hash__ = object.__hash__

    def __call__(self, x):
        return self._forward._inv_call(x)

    def _inv_call(self, y):
        return self._forward(y)

    def log_abs_det_jacobian(self, x, y):
        return -self._forward.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape):
        return self._forward.inverse_shape(shape)

    def inverse_shape(self, shape):
        return self._forward.forward_shape(shape)

    def __repr__(self):
        return f"{type(self).__name__}({self._forward!r})"


class ComposeTransform(Transform):
    """Transforms one after the other; of none, the identity."""

    def __init__(self, parts, cache_size: int = 0):
        super().__init__(cache_size)
        self.parts = [p.with_cache(cache_size) for p in parts] if cache_size else list(parts)

    bijective = property(lambda self: all(p.bijective for p in self.parts))

    def _reach(self, parts, at_end, at_start) -> int:
        """How many axes an event has at the start, going backwards from the end."""
        dim = at_end(parts[-1]).event_dim
        for p in reversed(parts):
            dim = max(dim + at_start(p).event_dim - at_end(p).event_dim, at_start(p).event_dim)
        return dim

    @property
    def domain(self):
        if not self.parts:
            return constraints.real
        own = self.parts[0].domain
        more = self._reach(self.parts, lambda p: p.codomain, lambda p: p.domain) - own.event_dim
        return constraints.independent(own, more) if more > 0 else own

    @property
    def codomain(self):
        if not self.parts:
            return constraints.real
        own = self.parts[-1].codomain
        more = self._reach(self.parts[::-1], lambda p: p.domain, lambda p: p.codomain) - own.event_dim
        return constraints.independent(own, more) if more > 0 else own

    @property
    def sign(self):
        sign = 1
        for p in self.parts:
            sign = sign * p.sign
        return sign

    @property
    def inv(self):
        inverse = self._inv() if self._inv is not None else None
        if inverse is None:
            inverse = ComposeTransform([p.inv for p in reversed(self.parts)])
            self._inv = weakref.ref(inverse)
            inverse._inv = lambda: self
        return inverse

    def with_cache(self, cache_size: int = 1):
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size)

    def __eq__(self, other):
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = object.__hash__

    def __call__(self, x):
        for p in self.parts:
            x = p(x)
        return x

    def _inv_call(self, y):
        for p in reversed(self.parts):
            y = p.inv(y)
        return y

    def log_abs_det_jacobian(self, x, y):
        if not self.parts:
            return x * 0
        total, event = None, self.domain.event_dim
        for i, p in enumerate(self.parts):
            after = y if i == len(self.parts) - 1 and y is not None else p(x)
            term = sum_last(p.log_abs_det_jacobian(x, after), event - p.domain.event_dim)
            total = term if total is None else total + term
            event += p.codomain.event_dim - p.domain.event_dim
            x = after
        return total

    def forward_shape(self, shape):
        for p in self.parts:
            shape = p.forward_shape(shape)
        return tuple(shape)

    def inverse_shape(self, shape):
        for p in reversed(self.parts):
            shape = p.inverse_shape(shape)
        return tuple(shape)

    def __repr__(self):
        return f"{type(self).__name__}([{', '.join(map(repr, self.parts))}])"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose last batch axes count as part of one event."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0):
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    bijective = property(lambda self: self.base_transform.bijective)
    sign = property(lambda self: self.base_transform.sign)
    domain = property(lambda self: constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims))
    codomain = property(
        lambda self: constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)
    )

    def with_cache(self, cache_size: int = 1):
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size)

    def _check(self, t, region):
        if t.ndim < region.event_dim:
            raise ShapeError("IndependentTransform", f"values are {t.shape}; an event has {region.event_dim} axes")
        return t

    def _call(self, x):
        return self.base_transform(self._check(x, self.domain))

    def _inverse(self, y):
        return self.base_transform.inv(self._check(y, self.codomain))

    def log_abs_det_jacobian(self, x, y):
        return sum_last(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape):
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape):
        return self.base_transform.inverse_shape(shape)

    def __repr__(self):
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Events of in_shape laid out as out_shape."""

    bijective = True

    def __init__(self, in_shape, out_shape, cache_size: int = 0):
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ShapeError(
                "ReshapeTransform", f"{self.in_shape} and {self.out_shape} have different numbers of elements"
            )

    domain = property(lambda self: constraints.independent(constraints.real, len(self.in_shape)))
    codomain = property(lambda self: constraints.independent(constraints.real, len(self.out_shape)))

    def with_cache(self, cache_size: int = 1):
        return self if self._cache_size == cache_size else ReshapeTransform(self.in_shape, self.out_shape, cache_size)

    def _call(self, x):
        return x.reshape(*self.forward_shape(x.shape))

    def _inverse(self, y):
        return y.reshape(*self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x, y):
        return x.new_zeros(x.shape[: x.ndim - len(self.in_shape)])

    def forward_shape(self, shape):
        return self._exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape):
        return self._exchanged(shape, self.out_shape, self.in_shape)

    def _exchanged(self, shape, old, new):
        cut = len(shape) - len(old)
        if cut < 0 or tuple(shape[cut:]) != old:
            raise ShapeError("ReshapeTransform", f"values are {tuple(shape)}; they must end in {old}")
        return (*shape[:cut], *new)
