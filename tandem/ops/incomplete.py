"""Incomplete gamma functions, Hurwitz's zeta function, beta functions, and functions of the normal distribution."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem.errors import AutogradError, ValueRangeError
from tandem.graph.ir import Type
from tandem.ops.define import Elementwise, LibraryOp, inplace, op, register
from tandem.ops.prepare import broadcast, constant, full_expand, promote_float, to_float
from tandem.ops.special import times_log


@register
class NoDerivative(Elementwise):
    """The same elements, as an operand by which no derivative is known: asking for it is an error instead of a silent zero."""

    name = "no_derivative"
    op_name: str
    operand: str

    def body(self, b, x):
        return x

    def grad(self, g, x):
        raise AutogradError(
            self.op_name,
            f"the derivative by {self.operand} is not offered",
            fix=f"detach it: {self.operand}.detach()",
        )


def operands(name: str, x, y):
    """Two floating operands of one type and shape, as routines of the library want them."""
    x, y = broadcast(name, *promote_float(x, y))
    shape = x.shape or y.shape
    return full_expand(x, shape), full_expand(y, shape)


@register
class Gammainc(LibraryOp):
    """P(a, x), or its derivative by a of the given order (0, 1 or 2)."""

    name = "gammainc"
    batching = "alike"
    routine = "special"
    order: int = 0
    takes = "F[*s] F[*s]"

    def infer(self, a: Type, x: Type) -> Type:
        return x

    def attributes(self, a, x):
        return ((20, 0) if self.order == 0 else (22, self.order)), ()

    def grad(self, g, a, x):
        if self.order >= 2:
            raise AutogradError("gammainc", "derivatives by a beyond the second are not offered")
        return g * Gammainc(self.order + 1)(a, x), g * _density(a, x, self.order)


@register
class Gammaincc(LibraryOp):
    """Q(a, x) = 1 - P(a, x), without loss where it is small."""

    name = "gammaincc"
    batching = "alike"
    routine = "special"
    takes = "F[*s] F[*s]"

    def infer(self, a: Type, x: Type) -> Type:
        return x

    def attributes(self, a, x):
        return (21, 0), ()

    def grad(self, g, a, x):
        return -g * Gammainc(1)(a, x), -g * _density(a, x, 0)


def _density(a, x, order: int):
    """The derivative of P by x, x^(a-1) exp(-x) / gamma(a), differentiated by a `order` times (0 or 1)."""
    value = F.exp(F.xlogy(a - 1, x) - x - F.lgamma(a))
    return value if order == 0 else value * (F.log(x) - F.digamma(a))


@op
def igamma(x: Tensor, y: Tensor):
    """The lower incomplete gamma function of order x at y, divided by gamma(x); from 0 to 1.

    x, y: broadcastable -> (*broadcast)

    >>> td.igamma(td.tensor([1.0, 2.0]), td.tensor([1.0, 2.0]))
    tensor([0.6321, 0.5940])
    """
    return Gammainc()(*operands("igamma", x, y))


@op
def igammac(x: Tensor, y: Tensor):
    """The upper incomplete gamma function of order x at y, divided by gamma(x): 1 - igamma(x, y), exact where it is small.

    >>> td.igammac(td.tensor([1.0, 2.0]), td.tensor([1.0, 2.0]))
    tensor([0.3679, 0.4060])
    """
    return Gammaincc()(*operands("igammac", x, y))


@register
class Zeta(LibraryOp):
    """Hurwitz's zeta function of (s, q), differentiated `order` times by s."""

    name = "zeta"
    batching = "alike"
    routine = "special"
    order: int
    takes = "F[*s] F[*s]"

    def infer(self, s: Type, q: Type) -> Type:
        return q

    def attributes(self, s, q):
        return (23, self.order), ()

    def grad(self, g, s, q):
        n = self.order
        by_q = -s * Zeta(n)(s + 1, q)
        if n:
            by_q = by_q - n * Zeta(n - 1)(s + 1, q)
        if n == _MOST_OF_ZETA:
            return g, g * by_q  # the first goes to NoDerivative, which refuses it
        last = n + 1 == _MOST_OF_ZETA
        return g * Zeta(n + 1)(NoDerivative("zeta", "x")(s) if last else s, q), g * by_q


_MOST_OF_ZETA = 8  # derivatives by the first argument


@op(internal=True)
def zeta(x: Tensor, y: Tensor):
    """Hurwitz's zeta function: the sum of 1 / (y + k) ** x over k = 0, 1, ...; y = 1 gives Riemann's.

    >>> td.special.zeta(td.tensor(2.0), 1)
    tensor(1.6449)
    """
    s, q = operands("zeta", x, y)
    return Zeta(0)(s, q)


_MOST_DIMENSIONS = 1000  # each is a term of the formula that is compiled


@op
def mvlgamma(x: Tensor, p):
    """The logarithm of the gamma function of p dimensions: that of symmetric positive matrices.

    >>> td.mvlgamma(td.tensor([2.0]), 2)
    tensor([0.4516])
    """
    if not isinstance(p, int) or not 1 <= p <= _MOST_DIMENSIONS:
        raise ValueRangeError("mvlgamma", f"p is {p!r}; it must be a whole number from 1 to {_MOST_DIMENSIONS}")
    x = to_float(x)
    total = constant(p * (p - 1) / 4 * math.log(math.pi), x.dtype)
    for j in range(p):
        total = total + F.lgamma(x - j / 2)
    return total


@op(internal=True)
def betaln(x: Tensor, y: Tensor):
    """The logarithm of the absolute value of the beta function.

    >>> td.special.betaln(td.tensor(2.0), td.tensor(3.0))
    tensor(-2.4849)
    """
    x, y = promote_float(x, y)
    x, y = broadcast("betaln", x, y)
    shape = x.shape if x.ndim else y.shape
    x, y = full_expand(x, shape), full_expand(y, shape)
    # All three at once: lgamma is long, and a kernel that has it three times takes three times as long to compile.
    parts = F.lgamma(F.stack([x, y, x + y]))
    return F.squeeze(F.slice_axis(parts, 0, 0, 1) + F.slice_axis(parts, 0, 1, 1) - F.slice_axis(parts, 0, 2, 1), 0)


@op(internal=True)
def beta(x: Tensor, y: Tensor):
    """The beta function gamma(x) gamma(y) / gamma(x + y), of positive numbers.

    >>> td.special.beta(td.tensor(2.0), td.tensor(3.0))
    tensor(0.0833)
    """
    return F.exp(F.betaln(x, y))


# -- the normal distribution


@register
class Erfcx(Elementwise):
    name = "erfcx"

    def body(self, b, x):
        return b.erfcx(x)

    def grad(self, g, x, *, out):
        return g * (2 * x * out - 2 / math.sqrt(math.pi))


@op(internal=True)
def erfcx(x: Tensor):
    """exp(x * x) * erfc(x), which does not underflow for large x.

    >>> td.special.erfcx(td.tensor([0.0, 10.0]))
    tensor([1.0000, 0.0561])
    """
    return Erfcx()(to_float(x))


@op(internal=True)
def ndtr(x: Tensor):
    """The distribution function of the standard normal distribution.

    >>> td.special.ndtr(td.tensor([0.0, 1.0]))
    tensor([0.5000, 0.8413])
    """
    return F.erfc(to_float(x) * -math.sqrt(0.5)) * 0.5


@register
class LogNdtr(Elementwise):
    name = "log_ndtr"

    def body(self, b, x):
        x = b.widen(x)
        low = b.log(b.erfcx(x * -math.sqrt(0.5)) * 0.5) - x * x * 0.5
        high = b.log1p(b.erfc(x * math.sqrt(0.5)) * -0.5)
        return b.where(x < -1.0, low, high)

    def grad(self, g, x):
        return g * math.sqrt(2 / math.pi) / F.erfcx(x * -math.sqrt(0.5))


@op(internal=True)
def log_ndtr(x: Tensor):
    """The logarithm of ndtr, exact far out too.

    >>> td.special.log_ndtr(td.tensor([0.0, -10.0]))
    tensor([ -0.6931, -53.2313])
    """
    return LogNdtr()(to_float(x))


@register
class Ndtri(Elementwise):
    name = "ndtri"
    batching = "leading"

    def body(self, b, x):
        return b.ndtri(x)

    def grad(self, g, x, *, out):
        return g * math.sqrt(2 * math.pi) * F.exp(out * out * 0.5)


@op(internal=True)
def ndtri(x: Tensor):
    """Where the standard normal distribution function takes the value x: the inverse of ndtr.

    >>> td.special.ndtri(td.tensor([0.5, 0.975]))
    tensor([0.0000, 1.9600])
    """
    return Ndtri()(to_float(x))


# -- products with logarithms


@op(internal=True)
def entr(x: Tensor):
    """-x * log(x): 0 at 0, minus infinity below.

    >>> td.special.entr(td.tensor([0.0, 0.5]))
    tensor([0.0000, 0.3466])
    """
    x = to_float(x)
    positive = F.greater(x, 0)
    inside = F.where(positive, x, 1)
    return F.where(positive, -inside * F.log(inside), F.where(F.equal(x, 0), 0, F.where(F.isnan(x), x, -math.inf)))


@op(internal=True)
def xlog1py(x: Tensor, y: Tensor):
    """x * log1p(y), and 0 where x is 0 and y is not NaN.

    >>> td.special.xlog1py(td.tensor([0.0, 2.0]), td.tensor([-1.0, 0.0]))
    tensor([0., 0.])
    """
    x, y = broadcast("xlog1py", *promote_float(x, y))
    return times_log(x, y, F.log1p, -1, 0)


for function in (igamma, igammac, mvlgamma):
    inplace(function)
