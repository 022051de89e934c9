"""What parameters must be and where samples lie: constraint.check(value) says so, event by event.

    td.distributions.constraints.positive.check(td.tensor([1.0, -1.0]))     # [True, False]

biject_to(constraint) and transform_to(constraint) give the ways there from all real numbers.
"""

from __future__ import annotations

import tandem as td


class Constraint:
    """A region. The last `event_dim` axes of a value are judged together; `is_discrete`: it holds whole numbers only."""

    is_discrete = False
    event_dim = 0

    def check(self, value):
        raise NotImplementedError

    def words(self) -> str:
        """The region in the words of an error message."""
        return f"in {self!r}"

    def __repr__(self):
        return type(self).__name__.removeprefix("_")


class _Dependent(Constraint):
    """A region that depends on other values, and is known of an instance only."""

    def __init__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        self._is_discrete, self._event_dim = is_discrete, event_dim
        super().__init__()

    @property
    def is_discrete(self):
        return self._known("is_discrete")

    @property
    def event_dim(self):
        return self._known("event_dim")

    def _known(self, name: str):
        value = getattr(self, "_" + name)
        if value is NotImplemented:
            raise NotImplementedError(f"{name} depends on the instance")
        return value

    def __call__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value):
        raise ValueError("a dependent constraint can be checked of an instance only")


class dependent_property(property, _Dependent):
    """A property that gives the constraint of an instance; of the class, a constraint that depends."""

    def __init__(self, fn=None, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        property.__init__(self, fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn):
        return dependent_property(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


def is_dependent(constraint) -> bool:
    return isinstance(constraint, _Dependent)


class independent(Constraint):
    """A constraint that holds for the last axes together."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int):
        inside = isinstance(base_constraint, independent)
        self.base_constraint = base_constraint.base_constraint if inside else base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims + (
            base_constraint.reinterpreted_batch_ndims if inside else 0
        )

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim + self.reinterpreted_batch_ndims)

    def check(self, value):
        held = self.base_constraint.check(value)
        count = self.reinterpreted_batch_ndims
        if held.ndim < count:
            raise ValueError(f"{self!r} needs values of {self.event_dim} axes or more; there are {value.ndim}")
        return held.flatten(held.ndim - count).all(-1) if count else held

    def words(self):
        return self.base_constraint.words() + " everywhere"

    def __repr__(self):
        return f"Independent({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """Where a mixture's samples lie: where those of every component do."""

    def __init__(self, base_constraint: Constraint):
        self.base_constraint = base_constraint

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim)

    def check(self, value):
        held = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        keep = value.ndim - self.event_dim
        return held.reshape(*held.shape[:keep], -1).all(-1)

    def __repr__(self):
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


class _Real(Constraint):
    def check(self, value):
        return value == value

    def words(self):
        return "a number"


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value):
        return (value == 0) | (value == 1)

    def words(self):
        return "0 or 1"


class _OneHot(Constraint):
    is_discrete, event_dim = True, 1

    def check(self, value):
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)

    def words(self):
        return "one-hot"


class _Bounded(Constraint):
    """Regions given by bounds, which are kept under the names that the constructor has."""

    bounds: tuple[str, ...] = ()

    def __init__(self, *values, **named):
        for name, value in {**dict(zip(self.bounds, values, strict=False)), **named}.items():
            setattr(self, name, value)

    def __repr__(self):
        return f"{super().__repr__()}({', '.join(f'{b}={getattr(self, b)}' for b in self.bounds)})"


class greater_than(_Bounded):
    bounds = ("lower_bound",)

    def check(self, value):
        return value > self.lower_bound

    def words(self):
        return f"greater than {self.lower_bound}"


class greater_than_eq(greater_than):
    def check(self, value):
        return value >= self.lower_bound

    def words(self):
        return f"at least {self.lower_bound}"


class less_than(_Bounded):
    bounds = ("upper_bound",)

    def check(self, value):
        return value < self.upper_bound

    def words(self):
        return f"less than {self.upper_bound}"


class interval(_Bounded):
    bounds = ("lower_bound", "upper_bound")

    def check(self, value):
        return (value >= self.lower_bound) & (value <= self.upper_bound)

    def words(self):
        return f"in [{self.lower_bound}, {self.upper_bound}]"


class half_open_interval(interval):
    def check(self, value):
        return (value >= self.lower_bound) & (value < self.upper_bound)


class integer_interval(interval):
    is_discrete = True

    def check(self, value):
        return super().check(value) & (value % 1 == 0)

    def words(self):
        return "a whole number " + super().words()


class _IntegerGreaterThan(greater_than_eq):
    is_discrete = True

    def check(self, value):
        return super().check(value) & (value % 1 == 0)

    def words(self):
        return "a whole number, " + super().words()


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value):
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)

    def words(self):
        return "at least 0 and add up to 1"


class multinomial(_Bounded):
    """Counts that add up to at most a number."""

    is_discrete, event_dim = True, 1
    bounds = ("upper_bound",)

    def check(self, value):
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _Matrix(Constraint):
    event_dim = 2


class _Square(_Matrix):
    def check(self, value):
        return td.full(value.shape[:-2], value.shape[-2] == value.shape[-1], dtype=td.bool, device=value.device)


class _LowerTriangular(_Matrix):
    def check(self, value):
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(_LowerTriangular):
    def check(self, value):
        return super().check(value) & (td.diagonal(value, 0, -2, -1) > 0).all(-1)

    def words(self):
        return "lower triangular with a positive diagonal"


class _CorrCholesky(_LowerCholesky):
    def check(self, value):
        slack = td.finfo(value.dtype).eps * value.shape[-1] * 10
        norms = td.sqrt((value * value).sum(-1))
        return super().check(value) & ((norms - 1).abs() <= slack).all(-1)

    def words(self):
        return "lower triangular with a positive diagonal and rows of length 1"


class _Symmetric(_Square):
    def check(self, value):
        return super().check(value) & td.isclose(value, value.mT, atol=1e-6).flatten(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value):
        return super().check(value) & (td.linalg.eigvalsh(value) >= 0).all(-1)

    def words(self):
        return "symmetric, with eigenvalues of at least 0"


class _PositiveDefinite(_Symmetric):
    def check(self, value):
        return super().check(value) & (td.linalg.cholesky_ex(value).info == 0)

    def words(self):
        return "symmetric and positive definite"


class cat(Constraint):
    """Constraints of parts that lie one after the other along an axis."""

    def __init__(self, cseq, dim: int = 0, lengths=None):
        self.cseq, self.dim = list(cseq), dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise ValueError(f"{len(self.cseq)} constraints but {len(self.lengths)} lengths")

    is_discrete = property(lambda self: any(c.is_discrete for c in self.cseq))
    event_dim = property(lambda self: max(c.event_dim for c in self.cseq))

    def check(self, value):
        parts = td.split(value, self.lengths, self.dim)
        return td.cat([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


class stack(Constraint):
    """Constraints of the slices along an axis."""

    def __init__(self, cseq, dim: int = 0):
        self.cseq, self.dim = list(cseq), dim

    is_discrete = property(lambda self: any(c.is_discrete for c in self.cseq))

    @property
    def event_dim(self):
        inside = max(c.event_dim for c in self.cseq)
        return inside + 1 if self.dim + inside < 0 else inside

    def check(self, value):
        parts = td.unbind(value, self.dim)
        return td.stack([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


dependent = _Dependent()
real = _Real()
real_vector = independent(real, 1)
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
simplex = _Simplex()
square = _Square()
symmetric = _Symmetric()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property",
    "greater_than", "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval", "is_dependent",
    "less_than", "lower_cholesky", "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot",
    "positive", "positive_definite", "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex", "square",
    "stack", "symmetric", "unit_interval",
]  # fmt: skip
