"""Triangular systems and Cholesky's factorisation."""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError
from tandem.graph.ir import Type, Value
from tandem.ops import rules
from tandem.ops.define import op, register
from tandem.ops.linalg.prepare import MatrixOp, adjoint, conj, identity, matrices, mm, same_batch, spelled, square, swap
from tandem.ops.prepare import show_shape

PLAIN, TRANSPOSED, ADJOINT = 0, 1, 2


@register
class SolveTriangular(MatrixOp):
    """x of op(a) x = b, or of x op(a) = b where not left. Reads one triangle of a; with `unit`, its diagonal counts as 1."""

    name = "solve_triangular"
    routine = "solve_triangular"
    may_fail = True
    upper: bool
    left: bool
    unit: bool
    mode: int
    takes = "M[*b,n,n] M[*b,p,q]"

    def infer(self, a: Type, b: Type) -> Type:
        return b

    def rule(self, a: Type, b: Type):
        rules.one_of(self, "mode", self.mode, (0, 1, 2))
        rules.need(self, b.shape[-2 if self.left else -1] == a.shape[-1], f"a is {a!r} and b is {b!r}")

    def attributes(self, a, b):
        return (int(self.upper), int(self.left), int(self.unit), self.mode), ()

    def grad(self, g, a, b, *, out):
        if self.mode == TRANSPOSED and a.dtype.is_complex:  # op(a)^-H is the conjugate of a^-1
            gb = conj(SolveTriangular(self.upper, self.left, self.unit, PLAIN)(a, conj(g)))
        else:
            mode = PLAIN if self.mode != PLAIN else ADJOINT
            gb = SolveTriangular(self.upper, self.left, self.unit, mode)(a, g)
        whole = -(mm(gb, adjoint(out)) if self.left else mm(adjoint(out), gb))
        if self.mode != PLAIN:
            whole = swap(whole) if self.mode == TRANSPOSED else adjoint(whole)
        ga = F.triu(whole, int(self.unit)) if self.upper else F.tril(whole, -int(self.unit))
        return ga, gb


@register
class Cholesky(MatrixOp):
    """(lower factor l of a = l l^H, int32 info). Reads the lower triangle."""

    name = "cholesky"
    routine = "cholesky"
    may_fail = True
    check: bool
    sparse_grads = True
    takes = "M[*b,n,n]"

    def infer(self, a: Type) -> tuple[Type, Type]:
        return a, Type(dtypes.int32, a.shape[:-2])

    def attributes(self, a):
        return (0, int(self.check)), ()

    def grad(self, g, a, *, out):
        l, gl = out[0], g[0]
        if gl is None:
            return None
        # Murray 2016, "Differentiation of the Cholesky decomposition", made symmetric.
        phi = F.tril(mm(adjoint(l), gl))
        phi = (phi + adjoint(F.tril(phi, -1))) / 2
        if phi.dtype.is_complex:  # imaginary parts of the diagonal move no factor
            phi = (phi + adjoint(phi)) / 2
        half = SolveTriangular(False, True, False, ADJOINT)(l, phi)
        return SolveTriangular(False, False, False, PLAIN)(l, half)


# -- functions


@op(name="solve_triangular", hidden=True)
def _solve_triangular(a: Tensor, b: Tensor, upper, left, unitriangular):
    return triangular_solution("solve_triangular", a, b, upper, left, unitriangular)


def triangular_solution(name: str, a: Value, b: Value, upper: bool, left: bool, unit: bool, mode: int = PLAIN) -> Value:
    a, b = same_batch(name, square(name, a, "A"), matrices(name, b, "B"))
    if a.shape[-1] != b.shape[-2 if left else -1]:
        raise ShapeError(
            name,
            f"A is {show_shape(a.shape)} and B {show_shape(b.shape)}; "
            f"the {'rows' if left else 'columns'} of B must be as many as those of A",
        )
    return SolveTriangular(bool(upper), bool(left), bool(unit), mode)(a, b)


def solve_triangular(A, B, *, upper, left=True, unitriangular=False):
    """X of A X = B (of X A = B with left=False) for triangular A; reads only that triangle, and with unitriangular takes its
    diagonal to be 1.

    A: (*b, n, n), B: (*b, n, k) -> (*b, n, k)

    >>> td.linalg.solve_triangular(td.tensor([[1.0, 0.0], [2.0, 4.0]]), td.tensor([[1.0], [4.0]]), upper=False)
    tensor([[1.0000],
            [0.5000]])
    """
    return _solve_triangular(A, B, bool(upper), bool(left), bool(unitriangular))


class CholeskyResult(NamedTuple):
    """A factor, and LAPACK's info: 0, or the order of the leading minor that is not positive."""

    L: object
    info: object


@spelled("cholesky")
@op(hidden=True)
def cholesky(x: Tensor, *, upper=False):
    """The lower triangular L with x = L L^H, or with upper the U = L^H; x is symmetric (Hermitian) and positive definite.

    x: (*b, n, n) -> (*b, n, n)

    >>> td.linalg.cholesky(td.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    factor = Cholesky(True)(square("cholesky", x))[0]
    return _upper(factor) if upper else factor


def _upper(factor: Value) -> Value:
    """L^H, with zeros below the diagonal that are not -0i."""
    return F.triu(adjoint(factor)) if factor.dtype.is_complex else adjoint(factor)


@op(name="cholesky_ex", hidden=True)
def _cholesky_ex(x: Tensor, upper, check):
    factor, info = Cholesky(check)(square("cholesky_ex", x))
    return (_upper(factor) if upper else factor), info


def cholesky_ex(x, *, upper=False, check_errors=False):
    """As cholesky, but without an error for matrices that have no factor: (L, info), with info 0 where there is one.

    x: (*b, n, n) -> (*b, n, n), (*b)

    >>> td.linalg.cholesky_ex(td.tensor([[-1.0]])).info
    tensor(1, dtype=int32)
    """
    return CholeskyResult(*_cholesky_ex(x, bool(upper), bool(check_errors)))


@spelled("cholesky_solve")
@op(hidden=True)
def cholesky_solve(B: Tensor, L: Tensor, upper=False):
    """X of A X = B, where L is the Cholesky factor of A (with upper: the upper one).

    B: (*b, n, k), L: (*b, n, n) -> (*b, n, k)

    >>> td.cholesky_solve(td.tensor([[8.0]]), td.tensor([[2.0]]))
    tensor([[2.]])
    """
    first, second = (ADJOINT, PLAIN) if upper else (PLAIN, ADJOINT)
    half = triangular_solution("cholesky_solve", L, B, upper, True, False, first)
    return triangular_solution("cholesky_solve", L, half, upper, True, False, second)


@spelled("cholesky_inverse")
@op(hidden=True)
def cholesky_inverse(L: Tensor, upper=False):
    """The inverse of A, where L is its Cholesky factor (with upper: the upper one).

    L: (*b, n, n) -> (*b, n, n)

    >>> td.cholesky_inverse(td.tensor([[2.0]]))
    tensor([[0.2500]])
    """
    L = square("cholesky_inverse", L, "L")
    return cholesky_solve(identity(L.shape[-1], L.dtype), L, upper)


@spelled("logdet")
@op(hidden=True)
def logdet(x: Tensor):
    """log of the determinant; NaN where that is negative, -inf where it is 0.

    x: (*b, n, n) -> (*b)

    >>> td.logdet(td.tensor([[1.0, 0.0], [0.0, 1.0]]))
    tensor(0.)
    """
    sign, logabs = F.Slogdet()(square("logdet", x))
    if x.dtype.is_complex:
        return F.log(sign) + logabs
    return F.where(F.less(sign, 0), float("nan"), logabs)
