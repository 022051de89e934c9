"""LU factorisation, and what comes from it: solutions, inverses, determinants."""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError, UnsupportedError
from tandem.graph.ir import Type, Value
from tandem.graph.symbolic import minimum, product
from tandem.ops import rules
from tandem.ops.define import LibraryOp, op, register
from tandem.ops.linalg.prepare import (
    MatrixOp,
    adjoint,
    column,
    conj,
    matrices,
    mm,
    spelled,
    square,
    swap,
    with_diagonal,
)
from tandem.ops.linalg.triangular import ADJOINT, PLAIN, TRANSPOSED, SolveTriangular
from tandem.ops.prepare import broadcast_shapes, cast, full_expand, promote, show_shape

# Note [Factors as companions]
# A solution needs the LU factors of its matrix, and so does its gradient; they should be computed once. But if the gradient were a
# function of the factors, second derivatives would have to pass through them. So LuSolve takes both, the matrix, of which it is a
# function, and its factors, which it computes with: derivatives go to the matrix alone.


@register
class LuFactor(MatrixOp):
    """(l and u in one matrix, int32 pivots from 1, int32 info) with rows exchanged for stability."""

    name = "lu_factor"
    routine = "lu_factor"
    may_fail = True
    cuda_library = "cusolver"
    sparse_grads = True
    takes = "M[*b,m,n]"

    def infer(self, a: Type) -> tuple[Type, Type, Type]:
        batch = a.shape[:-2]
        return a, Type(dtypes.int32, (*batch, minimum(*a.shape[-2:]))), Type(dtypes.int32, batch)

    def grad(self, g, a, *, out):
        if g[0] is None:
            return None
        return _lu_gradient(g[0], out[0], out[1])


@register
class Permutation(LibraryOp):
    """Rows in the order that pivots put them: int64 (*b, rows); or the inverse of that."""

    name = "permutation"
    batching = "leading"
    routine = "permutation"
    may_fail = True
    rows: object  # Dim
    inverse: bool
    takes = "i32[*b,k]"

    def infer(self, pivots: Type) -> Type:
        return Type(dtypes.int64, (*pivots.shape[:-1], self.rows))

    def rule(self, pivots: Type):
        rules.size(self, "rows", self.rows)
        rules.need(self, pivots.shape[-1] <= self.rows, f"pivots are {pivots!r}, of {self.rows} rows")

    def attributes(self, pivots):
        return (int(self.inverse),), ()


@register
class LuSolve(MatrixOp):
    """x of op(a) x = b, by the factors of a. See Note [Factors as companions]."""

    name = "lu_solve"
    routine = "lu_solve"
    may_fail = True
    cuda_library = "cusolver"
    mode: int
    check: bool
    takes = "M[*b,n,n] M[*b,n,n] i32[*b,n] M[*b,n,k]"

    def infer(self, a: Type, lu: Type, pivots: Type, b: Type) -> Type:
        return b

    def rule(self, a: Type, lu: Type, pivots: Type, b: Type):
        rules.one_of(self, "mode", self.mode, (0, 1, 2))

    def attributes(self, a, lu, pivots, b):
        return (self.mode, int(self.check)), ()

    def grad(self, g, a, lu, pivots, b, *, out):
        if self.mode == TRANSPOSED and a.dtype.is_complex:
            gb = conj(LuSolve(PLAIN, self.check)(a, lu, pivots, conj(g)))
        else:
            gb = LuSolve(PLAIN if self.mode != PLAIN else ADJOINT, self.check)(a, lu, pivots, g)
        ga = -mm(gb, adjoint(out))
        if self.mode != PLAIN:
            ga = swap(ga) if self.mode == TRANSPOSED else adjoint(ga)
        return ga, None, None, gb


@register
class Inverse(MatrixOp):
    """(inverse, int32 info)"""

    name = "inverse"
    routine = "inverse"
    may_fail = True
    check: bool
    sparse_grads = True
    takes = "M[*b,n,n]"

    def infer(self, a: Type) -> tuple[Type, Type]:
        return a, Type(dtypes.int32, a.shape[:-2])

    def attributes(self, a):
        return (int(self.check),), ()

    def grad(self, g, a, *, out):
        if g[0] is None:
            return None
        back = adjoint(out[0])
        return -mm(back, g[0], back)


@register
class Det(MatrixOp):
    name = "det"
    routine = "det"
    takes = "M[*b,n,n]"

    def infer(self, a: Type) -> Type:
        return a.with_shape(a.shape[:-2])

    def grad(self, g, a):
        return column(column(g)) * conj(Cofactor()(a))


@register
class Cofactor(MatrixOp):
    """det(a) inv(a)^T, which every matrix has; its own gradient is that of this formula, and needs an inverse."""

    name = "cofactor"
    routine = "cofactor"
    may_fail = True
    takes = "M[*b,n,n]"

    def infer(self, a: Type) -> Type:
        return a

    def grad(self, g, a, *, vjp):
        return vjp(lambda a: column(column(Det()(a))) * swap(Inverse(True)(a)[0]), [a], [g])[0]


@register
class Slogdet(MatrixOp):
    """(sign, log of the absolute value) of the determinant."""

    name = "slogdet"
    routine = "slogdet"
    sparse_grads = True
    takes = "M[*b,n,n]"

    def infer(self, a: Type) -> tuple[Type, Type]:
        batch = a.shape[:-2]
        return a.with_shape(batch), Type(dtypes.part_dtype(a.dtype), batch)

    def grad(self, g, a, *, out):
        gsign, glog = g
        weight = None if glog is None else cast(glog, a.dtype)
        if gsign is not None and a.dtype.is_complex:  # turning the sign: a phase moves along the imaginary axis
            turn = F.imag(conj(gsign) * out[0])
            phase = F.complex(F.zeros_like(turn), -turn)
            weight = phase if weight is None else weight + phase
        if weight is None:
            return None
        return column(column(weight)) * adjoint(Inverse(True)(a)[0])


def _unpack(lu: Value) -> tuple[Value, Value]:
    """(l with ones on its diagonal, u) of factors in one matrix."""
    m, n = lu.shape[-2:]
    k = minimum(m, n)
    lower = F.slice_axis(lu, -1, 0, k) if m > n or n > m else lu
    upper = F.slice_axis(lu, -2, 0, k) if m > n or n > m else lu
    return with_diagonal(F.tril(lower, -1), 1), F.triu(upper)


def _rows(x: Value, order: Value) -> Value:
    """Rows of matrices in the given order."""
    return F.take_along_axis(x, full_expand(column(order), (*order.shape, x.shape[-1])), -2)


def _lu_gradient(g: Value, lu: Value, pivots: Value) -> Value:
    """Gradient of the matrix that packed factors come from."""
    m, n = lu.shape[-2:]
    back = Permutation(m, True)(pivots)
    lower, upper = _unpack(lu)
    k = minimum(m, n)

    def left(x):  # l^-H x
        return SolveTriangular(False, True, True, ADJOINT)(_leading(lower, k), x)

    def right(x):  # x u^-H
        return SolveTriangular(True, False, False, ADJOINT)(_leading(upper, k), x)

    if m == n:
        inner = F.tril(mm(adjoint(lower), F.tril(g, -1)), -1) + F.triu(mm(F.triu(g), adjoint(upper)))
        result = right(left(inner))
    elif m < n:
        gl, gu = F.tril(_leading(g, k), -1), F.triu(g)
        inner = F.tril(mm(adjoint(lower), gl) - mm(gu, adjoint(upper)), -1)
        first = left(F.slice_axis(gu, -1, 0, k) + right(inner))
        result = F.concat([first, left(F.slice_axis(gu, -1, k, n - k))], -1)
    else:
        gl, gu = F.tril(g, -1), F.triu(_leading(g, k))
        inner = F.triu(mm(gu, adjoint(upper)) - mm(adjoint(lower), gl))
        first = right(F.slice_axis(gl, -2, 0, k) + left(inner))
        result = F.concat([first, right(F.slice_axis(gl, -2, k, m - k))], -2)
    return _rows(result, back)


def _leading(x: Value, k) -> Value:
    return F.slice_axis(F.slice_axis(x, -1, 0, k), -2, 0, k)


# -- LU


class LuResult(NamedTuple):
    """x = P L U."""

    P: object
    L: object
    U: object


class LuFactors(NamedTuple):
    """L and U in one matrix (the ones on L's diagonal left out), and the row, counted from 1, that each row was exchanged with."""

    LU: object
    pivots: object


class LuFactorsEx(NamedTuple):
    LU: object
    pivots: object
    info: object


def _only_pivoting(name: str, pivot):
    if not pivot:
        raise UnsupportedError(name, "pivot=False: rows are always exchanged, without which factors may not exist")


@op(name="lu", hidden=True)
def _lu(x: Tensor):
    x = matrices("lu", x)
    lu, pivots, _ = LuFactor()(x)
    lower, upper = _unpack(lu)
    return _permutation_matrix(x, pivots), lower, upper


def _permutation_matrix(x: Value, pivots: Value) -> Value:
    """P of x = P L U."""
    m = x.shape[-2]
    order = Permutation(m, False)(pivots)
    shape = (*x.shape[:-2], m, m)
    place = full_expand(F.Reshape((*order.shape[:-1], 1, m))(order), shape)
    return cast(F.Equal()(place, F.Iota(shape, len(shape) - 2, dtypes.int64)()), x.dtype)


def lu(x, *, pivot=True):
    """(P, L, U) with x = P L U: a permutation, a lower triangle with ones on its diagonal, an upper triangle.

    x: (*b, m, n) -> (*b, m, m), (*b, m, k), (*b, k, n), k = min(m, n)

    >>> td.linalg.lu(td.tensor([[0.0, 2.0], [1.0, 3.0]])).U
    tensor([[1., 3.],
            [0., 2.]])
    """
    _only_pivoting("lu", pivot)
    return LuResult(*_lu(x))


@op(name="lu_factor", hidden=True)
def _lu_factor(x: Tensor):
    return LuFactor()(matrices("lu_factor", x))


def lu_factor(x, *, pivot=True):
    """(LU, pivots): the factors of x in one matrix, for lu_solve. Singular matrices have them too.

    x: (*b, m, n) -> (*b, m, n), (*b, min(m, n)) int32

    >>> td.linalg.lu_factor(td.tensor([[0.0, 2.0], [1.0, 3.0]])).pivots
    tensor([2, 2], dtype=int32)
    """
    _only_pivoting("lu_factor", pivot)
    return LuFactors(*_lu_factor(x)[:2])


def lu_factor_ex(x, *, pivot=True, check_errors=False):
    """As lu_factor, with info: 0, or the number of the pivot that is zero.

    >>> td.linalg.lu_factor_ex(td.zeros(1, 1)).info
    tensor(1, dtype=int32)
    """
    _only_pivoting("lu_factor_ex", pivot)
    return LuFactorsEx(*_lu_factor(x))


@op(name="lu_solve", hidden=True)
def _lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, left, adjoint_):
    lu, b = promote(square("lu_solve", LU, "LU"), matrices("lu_solve", B, "B"))
    if pivots.dtype is not dtypes.int32:
        pivots = cast(pivots, dtypes.int32)
    if pivots.ndim != lu.ndim - 1 or pivots.shape[-1] != lu.shape[-1]:
        raise ShapeError(
            "lu_solve",
            f"LU is {show_shape(lu.shape)} and pivots are {show_shape(pivots.shape)}; there must be one for each row",
        )
    b = b if left else swap(b)
    _check_rows("lu_solve", lu, b, left)
    batch = broadcast_shapes("lu_solve", lu.shape[:-2], pivots.shape[:-1], b.shape[:-2])
    n = lu.shape[-1]
    lu, b = full_expand(lu, batch + (n, n)), full_expand(b, batch + b.shape[-2:])
    order = Permutation(n, False)(full_expand(pivots, batch + (n,)))
    # As two triangular systems, which are functions of the factors; see Note [Factors as companions] for the other way.
    adjoint_only = adjoint_ if left else not adjoint_
    conjugate = not left and lu.dtype.is_complex  # x a = b is a^T x^T = b^T, and what adjoint gives is conjugated
    b = conj(b) if conjugate else b
    if not adjoint_only:
        x = SolveTriangular(False, True, True, PLAIN)(lu, _rows(b, order))
        x = SolveTriangular(True, True, False, PLAIN)(lu, x)
    else:
        x = SolveTriangular(True, True, False, ADJOINT)(lu, b)
        x = SolveTriangular(False, True, True, ADJOINT)(lu, x)
        x = _rows(x, Permutation(n, True)(full_expand(pivots, batch + (n,))))
    x = conj(x) if conjugate else x
    return x if left else swap(x)


def _check_rows(name: str, a: Value, b: Value, left=True):
    if a.shape[-1] != b.shape[-2]:
        shown = show_shape(b.shape if left else swap(b).shape)
        raise ShapeError(
            name,
            f"A is {show_shape(a.shape)} and B {shown}; the {'rows' if left else 'columns'} of B must be as many as those of A",
        )


def lu_solve(LU, pivots, B, *, left=True, adjoint=False):
    """X of A X = B (X A = B with left=False; A^H in place of A with adjoint), given what lu_factor makes of A.

    LU: (*b, n, n), pivots: (*b, n), B: (*b, n, k) -> (*b, n, k)

    >>> td.linalg.lu_solve(*td.linalg.lu_factor(td.tensor([[2.0]])), td.tensor([[6.0]]))
    tensor([[3.]])
    """
    return _lu_solve(LU, pivots, B, bool(left), bool(adjoint))


# -- solutions and inverses


def solution(name: str, a: Value, b: Value, left: bool = True, check: bool = True) -> tuple[Value, Value]:
    """(x of a x = b, info)"""
    a, b = promote(square(name, a, "A"), b)
    b = b if left else swap(b)
    _check_rows(name, a, b, left)
    lu, pivots, info = LuFactor()(a)
    n = a.shape[-1]
    batch = broadcast_shapes(name, a.shape[:-2], b.shape[:-2])
    a, lu, b = (full_expand(v, batch + v.shape[-2:]) for v in (a, lu, b))
    x = LuSolve(PLAIN if left else TRANSPOSED, check)(a, lu, full_expand(pivots, batch + (n,)), b)
    return (x if left else swap(x)), info


def _solve_general(name: str, A: Value, B: Value, left: bool, check: bool):
    A = square(name, A, "A")
    if B.ndim == 1:
        B = matrices(name, F.Reshape((B.shape[0], 1) if left else (1, B.shape[0]))(B), "B")
        x, info = solution(name, A, B, left, check)
        return F.Reshape(x.shape[:-1] if left else (*x.shape[:-2], x.shape[-1]))(x), info
    return solution(name, A, matrices(name, B, "B"), left, check)


@op(name="solve", hidden=True)
def solve(A: Tensor, B: Tensor, *, left=True):
    """X of A X = B, or of X A = B with left=False. A vector B is one right-hand side; batch axes broadcast.

    A: (*b, n, n), B: (n) or (*b, n, k) -> (*b, n) or (*b, n, k)

    >>> td.linalg.solve(td.tensor([[2.0, 0.0], [0.0, 4.0]]), td.tensor([2.0, 8.0]))
    tensor([1., 2.])
    """
    return _solve_general("solve", A, B, left, True)[0]


class SolveResult(NamedTuple):
    result: object
    info: object


@op(name="solve_ex", hidden=True)
def _solve_ex(A: Tensor, B: Tensor, left, check):
    return _solve_general("solve_ex", A, B, left, check)


def solve_ex(A, B, *, left=True, check_errors=False):
    """As solve, but without an error for singular matrices: (result, info), with info 0 where there is a solution.

    >>> td.linalg.solve_ex(td.zeros(1, 1), td.ones(1)).info
    tensor(1, dtype=int32)
    """
    return SolveResult(*_solve_ex(A, B, bool(left), bool(check_errors)))


@spelled("inverse")
@op(hidden=True)
def inv(x: Tensor):
    """Inverses of square matrices.

    x: (*b, n, n) -> (*b, n, n)

    >>> td.linalg.inv(td.tensor([[[2.0]], [[4.0]]])).flatten()
    tensor([0.5000, 0.2500])
    """
    return Inverse(True)(square("inv", x))[0]


class InverseResult(NamedTuple):
    inverse: object
    info: object


@op(name="inv_ex", hidden=True)
def _inv_ex(x: Tensor, check):
    return Inverse(check)(square("inv_ex", x))


def inv_ex(x, *, check_errors=False):
    """As inv, but without an error for singular matrices: (inverse, info), with info 0 where there is an inverse.

    >>> td.linalg.inv_ex(td.zeros(1, 1)).info
    tensor(1, dtype=int32)
    """
    return InverseResult(*_inv_ex(x, bool(check_errors)))


# -- determinants


@spelled("det")
@op(hidden=True)
def det(x: Tensor):
    """Determinants of square matrices. There is a gradient at singular ones too.

    x: (*b, n, n) -> (*b)

    >>> td.linalg.det(td.tensor([[2.0, 1.0], [0.0, 4.0]]))
    tensor(8.)
    """
    return Det()(square("det", x))


class SlogdetResult(NamedTuple):
    """Determinants as sign * exp(logabsdet)."""

    sign: object
    logabsdet: object


@op(name="slogdet", hidden=True)
def _slogdet(x: Tensor):
    return Slogdet()(square("slogdet", x))


@spelled("slogdet")
def slogdet(x):
    """(sign, logabsdet): determinants too large or small for their type, as sign * exp(logabsdet).

    x: (*b, n, n) -> (*b), (*b)

    >>> td.linalg.slogdet(td.tensor([[-2.0]]))
    SlogdetResult(sign=tensor(-1.), logabsdet=tensor(0.6931))
    """
    return SlogdetResult(*_slogdet(x))


# -- tensors as matrices


@op(hidden=True)
def tensorinv(x: Tensor, ind=2):
    """The inverse of x as a linear map from its last axes to the first `ind` ones.

    x: (*p, *q) with as many elements in p (the first ind axes) as in q -> (*q, *p)

    >>> td.linalg.tensorinv(td.eye(4).reshape(2, 2, 2, 2)).shape
    (2, 2, 2, 2)
    """
    if ind < 1 or ind >= x.ndim:
        raise ShapeError("tensorinv", f"ind is {ind}; it must be from 1 to {x.ndim - 1} for x {show_shape(x.shape)}")
    first, last = x.shape[:ind], x.shape[ind:]
    if product(first) != product(last):
        raise ShapeError(
            "tensorinv",
            f"x is {show_shape(x.shape)}; its first {ind} axes must hold as many elements as the others",
        )
    flat = F.Reshape((product(first), product(last)))(x)
    return F.Reshape(last + first)(inv(flat))


@op(name="tensorsolve", hidden=True)
def _tensorsolve(A: Tensor, B: Tensor, axes):
    if axes is not None:
        moved = [a % A.ndim for a in axes]
        A = F.Permute((*(i for i in range(A.ndim) if i not in moved), *moved))(A)
    last = A.shape[B.ndim :]
    if product(A.shape[: B.ndim]) != product(B.shape) or product(last) != product(B.shape):
        raise ShapeError(
            "tensorsolve",
            f"A is {show_shape(A.shape)} and B {show_shape(B.shape)}; the first {B.ndim} axes of A must hold as "
            "many elements as B, and so must the others",
        )
    n = product(B.shape)
    return F.Reshape(last)(solve(F.Reshape((n, n))(A), F.Reshape((n,))(B)))


def tensorsolve(A, B, axes=None, *, dims=None):
    """X of tensordot(A, X, X.ndim) = B. `axes` of A are moved to its end first.

    A: (*b, *x), B: (*b) -> (*x)

    >>> td.linalg.tensorsolve(td.eye(4).reshape(2, 2, 2, 2), td.ones(2, 2)).shape
    (2, 2)
    """
    axes = axes if dims is None else dims
    return _tensorsolve(A, B, tuple(axes) if isinstance(axes, list) else axes)


@spelled("lu_solve")
def _torch_lu_solve(B, LU, pivots):
    """X of A X = B, given what lu_factor makes of A.

    >>> td.lu_solve(td.tensor([[6.0]]), *td.linalg.lu_factor(td.tensor([[2.0]])))
    tensor([[3.]])
    """
    return lu_solve(LU, pivots, B)


@spelled("lu")
def _torch_lu(x, pivot=True, get_infos=False):
    """(LU, pivots), or with get_infos (LU, pivots, infos): the factors of x in one matrix. td.linalg.lu gives P, L and U.

    >>> td.lu(td.tensor([[0.0, 2.0], [1.0, 3.0]]))[1]
    tensor([2, 2], dtype=int32)
    """
    made = lu_factor_ex(x, pivot=pivot)
    return tuple(made) if get_infos else (made.LU, made.pivots)


@op(name="lu_unpack", hidden=True)
def _lu_unpack(LU: Tensor, pivots: Tensor):
    LU = matrices("lu_unpack", LU, "LU_data")
    if pivots.ndim != LU.ndim - 1 or pivots.shape[-1] != minimum(*LU.shape[-2:]):
        raise ShapeError(
            "lu_unpack",
            f"LU_data is {show_shape(LU.shape)} and LU_pivots are {show_shape(pivots.shape)}; they do not fit",
        )
    return _permutation_matrix(LU, cast(pivots, dtypes.int32)), *_unpack(LU)


@spelled("lu_unpack", method=False)
def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    """(P, L, U) of what td.linalg.lu_factor gives; parts that are not wanted are empty.

    >>> td.lu_unpack(*td.linalg.lu_factor(td.tensor([[0.0, 2.0], [1.0, 3.0]]))).U
    tensor([[1., 3.],
            [0., 2.]])
    """
    p, l, u = _lu_unpack(LU_data, LU_pivots)
    empty = F.full((0,), 0, dtype=l.dtype)
    return LuResult(p if unpack_pivots else empty, *((l, u) if unpack_data else (empty, empty)))
