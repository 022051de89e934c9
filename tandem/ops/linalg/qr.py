"""QR factorisation and Householder reflections."""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as F
from tandem.errors import AutogradError, ShapeError, ValueRangeError
from tandem.graph.ir import Type, Value
from tandem.graph.symbolic import minimum
from tandem.ops import rules
from tandem.ops.define import op, register
from tandem.ops.linalg.prepare import (
    MatrixOp,
    adjoint,
    column,
    diagonal_of,
    identity,
    matrices,
    mm,
    nan_unless_zero,
    spelled,
    with_diagonal,
)
from tandem.ops.linalg.triangular import ADJOINT, SolveTriangular
from tandem.ops.prepare import promote, show_shape


@register
class Qr(MatrixOp):
    """(q, r) of a = q r: (*b, m, k) and (*b, k, n), k = min(m, n), or m where complete. Mode "r": r alone."""

    name = "qr"
    routine = "qr"
    mode: str
    sparse_grads = True
    takes = "M[*b,m,n]"

    def infer(self, a: Type):
        batch, (m, n) = a.shape[:-2], a.shape[-2:]
        k = m if self.mode == "complete" else minimum(m, n)
        q, r = a.with_shape((*batch, m, k)), a.with_shape((*batch, k, n))
        return r if self.mode == "r" else (q, r)

    def rule(self, a: Type):
        rules.one_of(self, "mode", self.mode, ("reduced", "complete", "r"))

    def attributes(self, a):
        return (int(self.mode == "complete"),), ()

    def grad(self, g, a, *, out):
        m, n = a.shape[-2:]
        if self.mode == "r":
            q, r = Qr("reduced")(a)
            return _qr_gradient(None, g, a, q, r)
        if self.mode == "complete" and m > n:
            q, r = F.slice_axis(out[0], -1, 0, n), F.slice_axis(out[1], -2, 0, n)
            gq, gr = g
            gr = None if gr is None else F.slice_axis(gr, -2, 0, n)
            if gq is None:
                return _qr_gradient(None, gr, a, q, r)
            result = _qr_gradient(F.slice_axis(gq, -1, 0, n), gr, a, q, r)
            return nan_unless_zero(result, F.slice_axis(gq, -1, n, m - n))
        return _qr_gradient(g[0], g[1], a, *out)


def _qr_gradient(gq: Value | None, gr: Value | None, a: Value, q: Value, r: Value) -> Value:
    """Walter, Lehmann, Lamour 2010, "On evaluating higher-order derivatives of the QR decomposition"."""
    m, n = a.shape[-2:]
    if m < n:  # the first m columns have factors of their own; the rest is q^H times them
        rest = F.slice_axis(a, -1, m, n - m)
        if gr is None:
            first, last = _square_part(gq, None, q, F.slice_axis(r, -1, 0, m)), None
        else:
            gr_first, gr_last = F.slice_axis(gr, -1, 0, m), F.slice_axis(gr, -1, m, n - m)
            through = mm(rest, adjoint(gr_last))
            gq = through if gq is None else gq + through
            first, last = _square_part(gq, gr_first, q, F.slice_axis(r, -1, 0, m)), mm(q, gr_last)
        return F.concat([first, F.zeros_like(rest) if last is None else last], -1)
    return _square_part(gq, gr, q, r)


def _square_part(gq: Value | None, gr: Value | None, q: Value, r: Value) -> Value:
    inner = None if gr is None else mm(gr, adjoint(r))
    if gq is not None:
        part = mm(adjoint(q), gq)
        inner = -part if inner is None else inner - part
    inner = F.triu(inner)
    both = inner + adjoint(inner)
    diagonal = diagonal_of(inner)
    if inner.dtype.is_complex:  # of the diagonal, the real part stands once in the sum, and the imaginary part cancels
        diagonal = F.complex(F.real(diagonal), F.zeros_like(F.real(diagonal)))
    inner = mm(q, with_diagonal(both, diagonal))
    return SolveTriangular(True, False, False, ADJOINT)(r, inner if gq is None else gq + inner)


@register
class Geqrf(MatrixOp):
    """(r above the diagonal and Householder vectors below it, tau)"""

    name = "geqrf"
    routine = "geqrf"
    takes = "M[*b,m,n]"

    def infer(self, a: Type) -> tuple[Type, Type]:
        return a, a.with_shape((*a.shape[:-2], minimum(*a.shape[-2:])))

    def grad(self, g, a, *, out):
        raise AutogradError("geqrf", "the packed form has no gradient", fix="use td.linalg.qr")


@register
class HouseholderProduct(MatrixOp):
    """The first n columns of the product of reflections I - tau[i] v[i] v[i]^H; a (*b, m, n) holds v[i] below its diagonal."""

    name = "householder_product"
    routine = "householder_product"
    takes = "M[*b,m,n] M[*b,k]"

    def infer(self, a: Type, tau: Type) -> Type:
        return a

    def rule(self, a: Type, tau: Type):
        rules.need(self, a.shape[-2] >= a.shape[-1] >= tau.shape[-1], f"a is {a!r} and tau is {tau!r}")

    def grad(self, g, a, tau, *, vjp):
        return vjp(_reflections, [a, tau], [g])


def _reflections(a: Value, tau: Value) -> Value:
    """What HouseholderProduct computes, as operators: for its gradient."""
    m, n = a.shape[-2:]
    v = with_diagonal(F.tril(a, -1), 1)
    result = F.slice_axis(identity(m, a.dtype, a.shape[:-2]), -1, 0, n)
    for i in reversed(range(int(tau.shape[-1]))):
        one = F.slice_axis(v, -1, i, 1)
        factor = F.slice_axis(tau, -1, i, 1)
        result = result - mm(one * column(factor), mm(adjoint(one), result))
    return result


# -- functions


class QrResult(NamedTuple):
    """x = Q R, with Q^H Q = 1 and R upper triangular."""

    Q: object
    R: object


@op(name="qr", hidden=True)
def _qr(x: Tensor, mode):
    x = matrices("qr", x)
    made = Qr(mode)(x)
    return (F.full((0,), 0, dtype=x.dtype), made) if mode == "r" else made


def qr(x, mode="reduced"):
    """(Q, R) with x = Q R. mode: "reduced", "complete" (Q square), or "r" (Q is empty). The columns that "complete" adds are not
    determined by x: a gradient that arrives for them makes that of x NaN.

    x: (*b, m, n) -> (*b, m, k), (*b, k, n), k = min(m, n), or m if complete

    >>> td.linalg.qr(td.tensor([[3.0], [4.0]])).R.abs().round()
    tensor([[5.]])
    """
    if mode not in ("reduced", "complete", "r"):
        raise ValueRangeError("qr", f"mode is {mode!r}; it must be 'reduced', 'complete' or 'r'")
    return QrResult(*_qr(x, mode))


@spelled("qr")
def _torch_qr(x, some=True):
    """(Q, R) with x = Q R; Q is square if not some.

    >>> td.qr(td.tensor([[3.0], [4.0]])).R.abs().round()
    tensor([[5.]])
    """
    return qr(x, mode="reduced" if some else "complete")


class GeqrfResult(NamedTuple):
    a: object
    tau: object


@op(name="geqrf", hidden=True)
def _geqrf(x: Tensor):
    return Geqrf()(matrices("geqrf", x))


@spelled("geqrf")
def geqrf(x):
    """(a, tau): R above the diagonal of a, and below it the Householder vectors of Q, for householder_product.

    x: (*b, m, n) -> (*b, m, n), (*b, min(m, n))

    >>> td.geqrf(td.tensor([[3.0], [4.0]])).tau.shape
    (1,)
    """
    return GeqrfResult(*_geqrf(x))


@spelled("orgqr")
@op(hidden=True)
def householder_product(x: Tensor, tau: Tensor):
    """The first n columns of a product of k reflections I - tau[i] v[i] v[i]^H, where v[i] is column i of x below its diagonal,
    with a one on it.

    x: (*b, m, n), tau: (*b, k), m >= n >= k -> (*b, m, n)

    >>> td.linalg.householder_product(td.tensor([[0.0], [1.0]]), td.tensor([1.0]))
    tensor([[ 0.],
            [-1.]])
    """
    x = matrices("householder_product", x)
    m, n = x.shape[-2:]
    if tau.ndim != x.ndim - 1 or n > m or tau.shape[-1] > n or tau.shape[:-1] != x.shape[:-2]:
        raise ShapeError(
            "householder_product",
            f"x is {show_shape(x.shape)} and tau {show_shape(tau.shape)}; they must be (*b, m, n) and (*b, k) with m >= n >= k",
        )
    return HouseholderProduct()(x, F.Cast(x.dtype)(tau) if tau.dtype is not x.dtype else tau)


@spelled("ormqr")
@op(hidden=True)
def ormqr(x: Tensor, tau: Tensor, other: Tensor, left=True, transpose=False):
    """Q @ other (other @ Q if not left; Q^H in place of Q with transpose), where Q is the whole product of reflections that x and
    tau hold, as geqrf gives them.

    x: (*b, m, k), tau: (*b, k), other: (*b, m, n), or (*b, n, m) if not left

    >>> td.ormqr(td.tensor([[0.0], [1.0]]), td.tensor([1.0]), td.tensor([[1.0], [0.0]]))
    tensor([[ 0.],
            [-1.]])
    """
    x, other = promote(matrices("ormqr", x), matrices("ormqr", other, "other"))
    m, k = x.shape[-2:]
    if tau.ndim != x.ndim - 1 or tau.shape[-1] > minimum(m, k):
        raise ShapeError(
            "ormqr",
            f"x is {show_shape(x.shape)} and tau {show_shape(tau.shape)}; tau has one number for each reflection in x",
        )
    if k < m:
        x = F.Embed((0,) * x.ndim, (1,) * x.ndim, (*x.shape[:-2], m, m))(x)
    elif k > m:
        x = F.slice_axis(x, -1, 0, m)
    q = householder_product(x, tau)
    q = adjoint(q) if transpose else q
    return mm(q, other) if left else mm(other, q)
