"""Symmetric and Hermitian matrices that need not be definite: the factorisation of Bunch and Kaufman."""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as F
from tandem import dtypes
from tandem.errors import AutogradError, LinAlgError, ShapeError
from tandem.graph.ir import Type
from tandem.ops.define import op, register
from tandem.ops.linalg.prepare import MatrixOp, conj, matrices, square
from tandem.ops.prepare import broadcast_shapes, cast, full_expand, promote, show_shape


@register
class LdlFactor(MatrixOp):
    """(l and d in one matrix, int32 pivots, int32 info), as LAPACK packs them. Reads the lower triangle."""

    name = "ldl_factor"
    routine = "ldl_factor"
    may_fail = True
    hermitian: bool
    takes = "M[*b,n,n]"

    def infer(self, a: Type) -> tuple[Type, Type, Type]:
        return a, Type(dtypes.int32, a.shape[:-1]), Type(dtypes.int32, a.shape[:-2])

    def attributes(self, a):
        return (int(self.hermitian),), ()

    def grad(self, g, a):
        raise AutogradError("ldl_factor", "the packed form has no gradient", fix="use td.linalg.solve, or x.detach()")


@register
class LdlSolve(MatrixOp):
    name = "ldl_solve"
    routine = "ldl_solve"
    may_fail = True
    hermitian: bool
    takes = "M[*b,n,n] i32[*b,n] M[*b,n,k]"

    def infer(self, ld: Type, pivots: Type, b: Type) -> Type:
        return b

    def attributes(self, ld, pivots, b):
        return (int(self.hermitian),), ()

    def grad(self, g, ld, pivots, b):
        if self.hermitian or not g.dtype.is_complex:
            return None, None, LdlSolve(self.hermitian)(ld, pivots, g)
        return None, None, conj(LdlSolve(False)(ld, pivots, conj(g)))


class LdlFactors(NamedTuple):
    LD: object
    pivots: object


class LdlFactorsEx(NamedTuple):
    LD: object
    pivots: object
    info: object


@op(name="ldl_factor", hidden=True)
def _ldl_factor(x: Tensor, hermitian):
    return LdlFactor(hermitian)(F.stop_gradient(square("ldl_factor", x)))


def ldl_factor_ex(x, *, hermitian=False, check_errors=False):
    """As ldl_factor, with info: 0, or the number of the diagonal element of D that is zero.

    >>> td.linalg.ldl_factor_ex(td.zeros(1, 1)).info
    tensor(1, dtype=int32)
    """
    made = LdlFactorsEx(*_ldl_factor(x, bool(hermitian)))
    if check_errors and int(F.count_nonzero(made.info)):
        raise LinAlgError("ldl_factor_ex", "a diagonal element of D is zero; the matrix is singular")
    return made


def ldl_factor(x, *, hermitian=False):
    """(LD, pivots): factors of symmetric (or Hermitian) matrices, definite or not, in one matrix, for ldl_solve. No gradient.

    x: (*b, n, n) -> (*b, n, n), (*b, n) int32

    >>> td.linalg.ldl_factor(td.tensor([[2.0]])).LD
    tensor([[2.]])
    """
    return LdlFactors(*_ldl_factor(x, bool(hermitian))[:2])


@op(name="ldl_solve", hidden=True)
def _ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, hermitian):
    ld, b = promote(square("ldl_solve", LD, "LD"), matrices("ldl_solve", B, "B"))
    n = ld.shape[-1]
    if pivots.ndim != ld.ndim - 1 or pivots.shape[-1] != n or b.shape[-2] != n:
        raise ShapeError(
            "ldl_solve",
            f"LD is {show_shape(ld.shape)}, pivots are {show_shape(pivots.shape)} and B is {show_shape(b.shape)}; "
            "they must be (*b, n, n), (*b, n) and (*b, n, k)",
        )
    batch = broadcast_shapes("ldl_solve", ld.shape[:-2], b.shape[:-2])
    pivots = full_expand(cast(pivots, dtypes.int32), batch + (n,))
    return LdlSolve(hermitian)(full_expand(ld, batch + (n, n)), pivots, full_expand(b, batch + b.shape[-2:]))


def ldl_solve(LD, pivots, B, *, hermitian=False):
    """X of A X = B, given what ldl_factor makes of A. The gradient is that of B.

    LD: (*b, n, n), pivots: (*b, n), B: (*b, n, k) -> (*b, n, k)

    >>> td.linalg.ldl_solve(*td.linalg.ldl_factor(td.tensor([[2.0]])), td.tensor([[6.0]]))
    tensor([[3.]])
    """
    return _ldl_solve(LD, pivots, B, bool(hermitian))
