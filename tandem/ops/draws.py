"""Random numbers from distributions whose drawing takes a varying number of random bits: gamma, beta, Dirichlet, Poisson,
binomial. Each element draws from bits of its own (see Note [Random numbers] in random.py and src/library/random_draws.cc)."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError
from tandem.graph.ir import Type, Value
from tandem.graph.symbolic import product
from tandem.ops import rules
from tandem.ops.define import LibraryOp, op, register
from tandem.ops.prepare import as_dtype_value, broadcast_shapes, cast, full_expand, promote, promote_float, to_float
from tandem.ops.random import uniform_bits

_DISTRIBUTIONS = ("gamma", "log_gamma", "poisson", "binomial")


@register
class Draw(LibraryOp):
    """One number for each element of the parameters. No gradient flows to them."""

    name = "draw"
    samples = True
    routine = "random_draws"
    distribution: str
    takes = "i64[] i64[] F[*s] F[*s]?"

    def infer(self, seed: Type, offset: Type, *parameters: Type) -> Type:
        return parameters[0]

    def rule(self, seed: Type, offset: Type, *parameters: Type):
        rules.one_of(self, "distribution", self.distribution, _DISTRIBUTIONS)

    def attributes(self, *types):
        return (_DISTRIBUTIONS.index(self.distribution),), ()


def _draw(name: str, distribution: str, state, shape, *parameters) -> Value:
    """parameters broadcast to `shape` (to one another if it is None)."""
    values = promote_float(*parameters)
    common = broadcast_shapes(name, *(v.shape for v in values))
    if shape is None:
        shape = common
    else:
        shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        if len(common) > len(shape) or broadcast_shapes(name, common, shape) != shape:
            raise ShapeError(name, f"parameters of shape {common} do not broadcast to size {shape}")
    offset = state.take(product(shape))
    return Draw(distribution)(state.seed, offset, *(F.Copy()(full_expand(F.stop_gradient(v), shape)) for v in values))


@op(internal=True)
def random_gamma(concentration: Tensor, scale: Tensor, shape: Ints | None = None, generator: Generator | None = None):
    """Gamma-distributed numbers."""
    return F.multiply(_draw("gamma", "gamma", generator, shape, concentration, scale), scale)


@op(internal=True)
def random_beta(a: Tensor, b: Tensor, shape: Ints | None = None, generator: Generator | None = None):
    """Beta-distributed numbers: the share of one of two gamma-distributed ones, from their logarithms."""
    a, b = promote(a, b)
    shape = broadcast_shapes("beta", a.shape, b.shape) if shape is None else shape
    first, second = (_draw("beta", "log_gamma", generator, shape, v) for v in (a, b))
    return F.sigmoid(first - second)


@op(internal=True)
def random_dirichlet(concentration: Tensor, shape: Ints | None = None, generator: Generator | None = None):
    """Points of the simplex: gamma-distributed numbers over their sum, from their logarithms."""
    if concentration.ndim == 0:
        raise ShapeError("dirichlet", "concentration has no axes; the last is that of the parts")
    lead = () if shape is None else tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    return F.softmax(_draw("dirichlet", "log_gamma", generator, (*lead, *concentration.shape), concentration), -1)


@op
def poisson(x: Tensor, *, generator: Generator | None = None):
    """Poisson-distributed numbers whose rates x gives; of x's shape and dtype.

    >>> td.poisson(td.tensor([0.0, 0.0]))
    tensor([0., 0.])
    """
    wide = cast(x, dtypes.float64) if x.dtype.is_integer else to_float(x)
    return cast(_draw("poisson", "poisson", generator, None, wide), x.dtype)


@op
def binomial(count: Tensor, prob: Tensor, *, generator: Generator | None = None):
    """Numbers of successes among `count` trials that each succeed with probability prob.

    count, prob: broadcastable -> (*broadcast)

    >>> td.binomial(td.tensor([10.0, 10.0]), td.tensor([0.0, 1.0]))
    tensor([ 0., 10.])
    """
    return _draw("binomial", "binomial", generator, None, count, prob)


@op(internal=True)
def random_categorical(logits: Tensor, axis, shape: Ints | None = None, generator: Generator | None = None):
    """Positions along an axis with probabilities softmax(logits): the largest of logits and Gumbel noise."""
    logits = to_float(logits)
    wide = dtypes.float64 if logits.dtype is dtypes.float64 else dtypes.float32
    lead = () if shape is None else tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if logits.ndim == 0:
        raise ShapeError("categorical", "logits have no axes; one is that of the classes")
    axis = axis if axis < 0 else axis - logits.ndim
    unit = uniform_bits(generator, (*lead, *logits.shape), wide)
    # log(-log(u)) of u in (0, 1); 1 - u keeps clear of log(0)
    noise = -F.log(-F.log1p(-unit) + as_dtype_value(1e-37, wide))
    return F.argmax(cast(logits, wide) + noise, axis)
