"""Orthogonal polynomials by degree: Chebyshev's, Hermite's, Laguerre's, Legendre's. The names of td.special."""

from __future__ import annotations

import tandem.ops as F
from tandem.errors import AutogradError
from tandem.graph.ir import Type
from tandem.ops import rules
from tandem.ops.define import INTERNAL, LibraryOp, op, register
from tandem.ops.extras import store
from tandem.ops.incomplete import operands
from tandem.ops.prepare import to_float

_FAMILIES = (
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
    "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l",
    "legendre_polynomial_p",
)  # fmt: skip


@register
class OrthogonalPolynomial(LibraryOp):
    """The polynomial of one family of degree n at x, differentiated by x `order` times."""

    name = "orthogonal_polynomial"
    batching = "leading"
    routine = "polynomial"
    may_fail = True
    family: int
    order: int = 0
    takes = "F[*s] F[*s]"

    def infer(self, x: Type, n: Type) -> Type:
        return x

    def rule(self, x: Type, n: Type):
        rules.allowed(self, 0 <= self.family < len(_FAMILIES), f"family is {self.family}")
        rules.allowed(self, 0 <= self.order <= 16, f"order is {self.order}; there are derivatives to the 16th")

    def attributes(self, x, n):
        return (40 + self.family, self.order), ()

    def grad(self, g, x, n):
        if self.order == 16:
            raise AutogradError(_FAMILIES[self.family], "derivatives beyond the 16th are not offered")
        return g * OrthogonalPolynomial(self.family, self.order + 1)(x, n), None


def _step(family: int, x, m: int, here, before):
    """The polynomial of degree m + 1 from those of degrees m and m - 1."""
    if family == 8:
        return 2 * x * here - 2 * m * before
    if family == 9:
        return x * here - m * before
    if family == 10:
        return ((2 * m + 1 - x) * here - m * before) / (m + 1)
    if family == 11:
        return ((2 * m + 1) * x * here - m * before) / (m + 1)
    return ((4 * x - 2) if family >= 4 else 2 * x) * here - before


_SLOPES, _STARTS = (1, 2, 2, 2, 2, 4, 4, 4, 2, 1, -1, 1), (0, 0, -1, 1, -1, -2, -3, -1, 0, 0, 1, 0)


@op(hidden=True, name="orthogonal_polynomial")
def _fixed(x: Tensor, family, n):
    """Of a degree that is known: written out, so that it fuses and differentiates as any formula."""
    x = to_float(x)
    if n < 0:
        return F.full_like(x, 0)
    before, here = F.full_like(x, 1), x * _SLOPES[family] + _STARTS[family]
    for m in range(1, n):
        before, here = here, _step(family, x, m, here, before)
    return here if n else before


@op(hidden=True, name="orthogonal_polynomial")
def _by_element(x: Tensor, n: Tensor, family):
    return OrthogonalPolynomial(family)(*operands(_FAMILIES[family], x, n))


def _define(family: int, name: str, text: str, example: str):
    def polynomial(x, n, *, out=None):
        short = isinstance(n, int) and n <= 40
        return store(name, _fixed(x, family, n) if short else _by_element(x, n, family), out)

    polynomial.__name__ = polynomial.__qualname__ = name
    polynomial.__doc__ = f"""{text} of degree n at x; n may be a tensor. 0 for negative degrees.

    x, n: broadcastable -> (*broadcast)

    >>> td.special.{name}(td.tensor([0.5]), 2)
    {example}
    """
    INTERNAL[name] = globals()[name] = polynomial


for _family, (_text, _example) in enumerate((
    ("Chebyshev's polynomial of the first kind", "tensor([-0.5000])"),
    ("Chebyshev's polynomial of the second kind", "tensor([0.])"),
    ("Chebyshev's polynomial of the third kind", "tensor([-1.])"),
    ("Chebyshev's polynomial of the fourth kind", "tensor([1.])"),
    ("Chebyshev's polynomial of the first kind, moved to [0, 1]: that at 2 x - 1,", "tensor([-1.])"),
    ("Chebyshev's polynomial of the second kind, moved to [0, 1]: that at 2 x - 1,", "tensor([-1.])"),
    ("Chebyshev's polynomial of the third kind, moved to [0, 1]: that at 2 x - 1,", "tensor([-1.])"),
    ("Chebyshev's polynomial of the fourth kind, moved to [0, 1]: that at 2 x - 1,", "tensor([-1.])"),
    ("Hermite's polynomial, as physicists write it,", "tensor([-1.])"),
    ("Hermite's polynomial, as used in probability,", "tensor([-0.7500])"),
    ("Laguerre's polynomial", "tensor([0.1250])"),
    ("Legendre's polynomial", "tensor([-0.1250])"),
)):  # fmt: skip
    _define(_family, _FAMILIES[_family], _text, _example)
