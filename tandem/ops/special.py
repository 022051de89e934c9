"""Special functions: the logistic function, the error function and their inverses."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem.ops.define import Elementwise, alias, inplace, op, register
from tandem.ops.prepare import broadcast, promote_float, to_float


@register
class Sigmoid(Elementwise):
    name = "sigmoid"
    takes_complex = True

    def body(self, b, x):
        return b.sigmoid(x)

    def grad(self, g, x, *, out):
        return g * out * (1 - out)


@op
def sigmoid(x: Tensor):
    """The logistic function 1 / (1 + exp(-x)).

    >>> td.sigmoid(td.tensor([0.0, 2.0]))
    tensor([0.5000, 0.8808])
    """
    return Sigmoid()(to_float(x))


@op
def logit(x: Tensor, eps=None):
    """log(x / (1 - x)), the inverse of sigmoid; eps keeps x within [eps, 1 - eps].

    >>> td.logit(td.tensor([0.5, 0.75]))
    tensor([0.0000, 1.0986])
    """
    x = to_float(x)
    if eps is not None:
        x = F.clip(x, eps, 1 - eps)
    return F.log(x) - F.log1p(-x)


@register
class Erf(Elementwise):
    name = "erf"

    def body(self, b, x):
        return b.erf(x)

    def grad(self, g, x):
        return g * (2 / math.sqrt(math.pi)) * F.exp(-(x * x))


@op
def erf(x: Tensor):
    """The error function.

    >>> td.erf(td.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8427])
    """
    return Erf()(to_float(x))


@register
class Erfc(Elementwise):
    name = "erfc"

    def body(self, b, x):
        return b.erfc(x)

    def grad(self, g, x):
        return g * (-2 / math.sqrt(math.pi)) * F.exp(-(x * x))


@op
def erfc(x: Tensor):
    """1 - erf(x), exact for large x too.

    >>> td.erfc(td.tensor([0.0, 1.0]))
    tensor([1.0000, 0.1573])
    """
    return Erfc()(to_float(x))


@register
class Erfinv(Elementwise):
    name = "erfinv"

    def body(self, b, x):
        return b.erfinv(x)

    def grad(self, g, x, *, out):
        return g * (math.sqrt(math.pi) / 2) * F.exp(out * out)


@op
def erfinv(x: Tensor):
    """The inverse of erf; infinite at -1 and 1.

    >>> td.erfinv(td.tensor([0.0, 0.5]))
    tensor([0.0000, 0.4769])
    """
    return Erfinv()(to_float(x))


@op
def xlogy(x: Tensor, y: Tensor):
    """x * log(y), and 0 where x is 0 and y is not NaN.

    >>> td.xlogy(td.tensor([0.0, 2.0]), td.tensor([0.0, 1.0]))
    tensor([0., 0.])
    """
    x, y = promote_float(x, y)
    x, y = broadcast("xlogy", x, y)
    return times_log(x, y, F.log, 0, 1)


def times_log(x, y, log, end, one):
    """x * log(y), 0 for an x of 0 where log(y), which starts at `end` and is 0 at `one`, has no finite value."""
    without = F.logical_or(F.less_equal(y, end), F.equal(y, math.inf))
    nothing = F.logical_and(F.equal(x, 0), without)
    # With `one` in place of y there, neither the logarithm nor its derivative is infinite. Elsewhere x may be 0 and still have a
    # derivative, log(y); subtracting from 0 makes the value +0 then.
    return F.where(nothing, 0, 0 - x * -log(F.where(nothing, one, y)))


alias("expit", sigmoid)
for function in (sigmoid, logit, erf, erfc, erfinv, xlogy):
    inplace(function)
