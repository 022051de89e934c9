"""Ways from all real numbers into a constraint: biject_to, by transforms that can be undone; transform_to, by any.

scale = transform_to(constraints.positive)(free)          # free is what an optimiser changes
"""

from __future__ import annotations

from tandem.distributions import constraints, transforms
from tandem.errors import UnsupportedError


class ConstraintRegistry:
    """Factories of transforms by kind of constraint: registry(constraint) makes one, registry.register(kind) adds a factory."""

    def __init__(self, name: str):
        self._name, self._factories = name, {}

    def register(self, constraint, factory=None):
        """Adds a factory for a class of constraints (or the class of one); decorates if none is given."""
        if factory is None:
            return lambda made: self.register(constraint, made)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, constraints.Constraint)):
            raise TypeError(f"{self._name}.register takes a Constraint or a class of them, not {constraint!r}")
        self._factories[kind] = factory
        return factory

    def __call__(self, constraint) -> transforms.Transform:
        factory = self._factories.get(type(constraint))
        if factory is None:
            raise UnsupportedError(
                self._name, f"no transform to {constraint!r}", fix=f"register one: {self._name}.register(kind, factory)"
            )
        return factory(constraint)


biject_to = ConstraintRegistry("biject_to")
transform_to = ConstraintRegistry("transform_to")


def _both(*kinds):
    def decorate(factory):
        for registry in (biject_to, transform_to):
            for kind in kinds:
                registry.register(kind, factory)
        return factory

    return decorate


@_both(constraints.real)
def _real(constraint):
    return transforms.identity_transform


@_both(constraints.greater_than, constraints.greater_than_eq)
def _above(constraint):
    if isinstance(constraint.lower_bound, (int, float)) and constraint.lower_bound == 0:
        return transforms.ExpTransform()
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.lower_bound, 1)]
    )


@_both(constraints.less_than)
def _below(constraint):
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.upper_bound, -1)]
    )


@_both(constraints.interval, constraints.half_open_interval)
def _between(constraint):
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)])


biject_to.register(constraints.simplex, lambda c: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda c: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda c: transforms.LowerCholeskyTransform())
transform_to.register(constraints.positive_definite, lambda c: transforms.PositiveDefiniteTransform())
transform_to.register(constraints.positive_semidefinite, lambda c: transforms.PositiveDefiniteTransform())
_both(constraints.corr_cholesky)(lambda c: transforms.CorrCholeskyTransform())


def _of_parts(registry: ConstraintRegistry):
    """Constraints that hold others go through the same registry."""
    registry.register(
        constraints.independent,
        lambda c: transforms.IndependentTransform(registry(c.base_constraint), c.reinterpreted_batch_ndims),
    )
    registry.register(
        constraints.cat, lambda c: transforms.CatTransform([registry(k) for k in c.cseq], c.dim, c.lengths)
    )
    registry.register(constraints.stack, lambda c: transforms.StackTransform([registry(k) for k in c.cseq], c.dim))


_of_parts(biject_to)
_of_parts(transform_to)
