"""Eigenvalues, singular values, and what comes from them: pseudo-inverses, least squares, ranks."""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError, ValueRangeError
from tandem.graph.ir import Type, Value
from tandem.graph.symbolic import maximum, minimum
from tandem.ops.define import op, register
from tandem.ops.linalg.prepare import (
    MatrixOp,
    adjoint,
    column,
    conj,
    diagonal_of,
    matrices,
    mm,
    nan_unless_zero,
    reciprocal_or_zero,
    row,
    same_batch,
    scaled_columns,
    scaled_rows,
    spelled,
    square,
    with_diagonal,
)
from tandem.ops.linalg.solve import solution
from tandem.ops.prepare import cast, constant, full_expand, show_shape

# Note [Equal eigenvalues]
# Gradients of eigenvectors divide by differences of eigenvalues. Where two are equal, the vectors are not determined, and a
# function of them has a gradient only if it does not depend on the choice; then what is divided by the difference is zero as well,
# and the quotient is taken as zero.


def _quotient_or_zero(x: Value, by: Value) -> Value:
    return x * cast(reciprocal_or_zero(by), x.dtype)


@register
class Eigh(MatrixOp):
    """(eigenvalues ascending, eigenvectors in columns) of symmetric or Hermitian matrices. Reads one triangle."""

    name = "eigh"
    routine = "eigh"
    may_fail = True
    cuda_library = "cusolver"
    upper: bool
    sparse_grads = True
    takes = "M[*b,n,n]"

    def infer(self, a: Type) -> tuple[Type, Type]:
        return Type(dtypes.part_dtype(a.dtype), a.shape[:-1]), a

    def attributes(self, a):
        return (int(self.upper),), ()

    def grad(self, g, a, *, out):
        (w, v), (gw, gv) = out, g
        if gv is None:
            return mm(scaled_columns(v, gw), adjoint(v))
        inner = _quotient_or_zero(mm(adjoint(v), gv), row(w) - column(w))
        inner = (inner + adjoint(inner)) / 2  # among symmetric matrices
        if gw is not None:
            inner = with_diagonal(inner, gw)
        return mm(v, inner, adjoint(v))


@register
class Eigvalsh(MatrixOp):
    name = "eigvalsh"
    routine = "eigh"
    may_fail = True
    cuda_library = "cusolver"
    upper: bool
    takes = "M[*b,n,n]"

    def infer(self, a: Type) -> Type:
        return Type(dtypes.part_dtype(a.dtype), a.shape[:-1])

    def attributes(self, a):
        return (int(self.upper),), ()

    def grad(self, g, a):
        v = Eigh(self.upper)(a)[1]
        return mm(scaled_columns(v, g), adjoint(v))


@register
class Eig(MatrixOp):
    """(eigenvalues, eigenvectors in columns, of length 1) of any square matrices, complex."""

    name = "eig"
    routine = "eig"
    may_fail = True
    sparse_grads = True
    takes = "M[*b,n,n]"

    def infer(self, a: Type) -> tuple[Type, Type]:
        dtype = dtypes.COMPLEX_OF.get(a.dtype, a.dtype)
        return Type(dtype, a.shape[:-1]), Type(dtype, a.shape)

    def grad(self, g, a, *, out):
        (w, v), (gw, gv) = out, g
        vh = adjoint(v)
        if gv is None:
            inner = scaled_rows(vh, gw)
        else:
            projected = mm(vh, gv)
            # Vectors have length 1, so that changes along themselves do not count.
            lengths = cast(F.real(diagonal_of(projected)), v.dtype)
            inner = projected - scaled_columns(mm(vh, v), lengths)
            inner = _quotient_or_zero(inner, conj(row(w) - column(w)))
            inner = mm(with_diagonal(inner, 0 if gw is None else gw), vh)
        return _real_where(a, solution("eig", vh, inner)[0])


def _real_where(a: Value, g: Value) -> Value:
    """The gradient of a real matrix is real."""
    return g if a.dtype.is_complex else F.real(g)


@register
class Eigvals(MatrixOp):
    name = "eigvals"
    routine = "eig"
    may_fail = True
    takes = "M[*b,n,n]"

    def infer(self, a: Type) -> Type:
        return Type(dtypes.COMPLEX_OF.get(a.dtype, a.dtype), a.shape[:-1])

    def grad(self, g, a):
        vh = adjoint(Eig()(a)[1])
        return _real_where(a, solution("eigvals", vh, scaled_rows(vh, g))[0])


@register
class Svd(MatrixOp):
    """(u, s descending, vh): reduced, or with square u and vh where full."""

    name = "svd"
    routine = "svd"
    may_fail = True
    full: bool
    sparse_grads = True
    takes = "M[*b,m,n]"

    def infer(self, a: Type) -> tuple[Type, Type, Type]:
        batch, (m, n) = a.shape[:-2], a.shape[-2:]
        k = minimum(m, n)
        return (
            a.with_shape((*batch, m, m if self.full else k)),
            Type(dtypes.part_dtype(a.dtype), (*batch, k)),
            a.with_shape((*batch, n if self.full else k, n)),
        )

    def attributes(self, a):
        return (int(self.full),), ()

    def grad(self, g, a, *, out):
        (u, s, vh), (gu, gs, gvh) = out, g
        if not self.full:
            return _svd_gradient(gu, gs, gvh, a, u, s, vh)
        (m, n), k = a.shape[-2:], s.shape[-1]
        extra = []  # what lies beyond the reduced factors is not determined by a
        if gu is not None and m > k:
            extra.append(F.slice_axis(gu, -1, k, m - k))
        if gvh is not None and n > k:
            extra.append(F.slice_axis(gvh, -2, k, n - k))
        u, gu = (x if x is None else F.slice_axis(x, -1, 0, k) for x in (u, gu))
        vh, gvh = (x if x is None else F.slice_axis(x, -2, 0, k) for x in (vh, gvh))
        return nan_unless_zero(_svd_gradient(gu, gs, gvh, a, u, s, vh), *extra)


def _svd_gradient(gu, gs, gvh, a, u, s, vh) -> Value:
    """Townsend 2016, "Differentiating the singular value decomposition"; see Note [Equal eigenvalues]."""
    if gu is None and gvh is None:
        return mm(scaled_columns(u, gs), vh)
    m, n = a.shape[-2:]
    k = s.shape[-1]
    inner, phases = None, None
    if gu is not None:
        part = mm(adjoint(u), gu)
        part = part - adjoint(part)
        if part.dtype.is_complex:
            phases = _quotient_or_zero(diagonal_of(part), 2 * s)
        inner = scaled_columns(part, s)
    if gvh is not None:
        part = mm(vh, adjoint(gvh))
        part = scaled_rows(part - adjoint(part), s)
        inner = part if inner is None else inner + part
    squares = s * s
    inner = _quotient_or_zero(inner, row(squares) - column(squares))
    diagonal = gs
    if phases is not None:
        diagonal = phases if gs is None else phases + cast(gs, phases.dtype)
    if diagonal is not None:
        inner = with_diagonal(inner, diagonal)
    inverse = reciprocal_or_zero(s)
    result = mm(u, inner)
    if m > k and gu is not None:
        tall = scaled_columns(gu, inverse)
        result = result + tall - mm(u, mm(adjoint(u), tall))
    result = mm(result, vh)
    if n > k and gvh is not None:
        wide = scaled_rows(gvh, inverse)
        result = result + mm(u, wide - mm(mm(wide, adjoint(vh)), vh))
    return result


@register
class Svdvals(MatrixOp):
    name = "svdvals"
    routine = "svd"
    may_fail = True
    takes = "M[*b,m,n]"

    def infer(self, a: Type) -> Type:
        return Type(dtypes.part_dtype(a.dtype), (*a.shape[:-2], minimum(*a.shape[-2:])))

    def attributes(self, a):
        return (0,), ()

    def grad(self, g, a):
        u, _, vh = Svd(False)(a)
        return mm(scaled_columns(u, g), vh)


@register
class Pinv(MatrixOp):
    """Pseudo-inverse; singular values up to max(atol, rtol * the largest) count as zero, where these (*b) are given."""

    name = "pinv"
    routine = "pinv"
    may_fail = True
    hermitian: bool
    takes = "M[*b,m,n] ?[*t]..."

    def infer(self, a: Type, *tolerances: Type) -> Type:
        return a.with_shape((*a.shape[:-2], a.shape[-1], a.shape[-2]))

    def attributes(self, a, *tolerances):
        return (int(self.hermitian),), ()

    def grad(self, g, a, *tolerances, out):
        # Golub, Pereyra 1973, "The differentiation of pseudo-inverses and nonlinear least squares problems".
        p, ph, gh = out, adjoint(out), adjoint(g)
        if a.shape[-2] <= a.shape[-1]:
            k = mm(gh, p)
            kp = mm(k, ph)
            ga = kp - adjoint(mm(p, k)) - mm(a, mm(p, kp)) + mm(ph, mm(p, gh - mm(k, a)))
        else:
            k = mm(p, gh)
            pk = mm(ph, k)
            ga = pk - adjoint(mm(k, p)) + mm(mm(gh - mm(a, k), p), ph) - mm(mm(pk, p), a)
        return ga, *(None for _ in tolerances)


@register
class LstSq(MatrixOp):
    """(x, int64 rank, singular values): the shortest x of least |a x - b|."""

    name = "lstsq"
    routine = "lstsq"
    may_fail = True
    rcond: float
    sparse_grads = True
    takes = "M[*b,m,n] M[*b,m,k]"

    def infer(self, a: Type, b: Type) -> tuple[Type, Type, Type]:
        batch, (m, n) = a.shape[:-2], a.shape[-2:]
        return (
            a.with_shape((*batch, n, b.shape[-1])),
            Type(dtypes.int64, batch),
            Type(dtypes.part_dtype(a.dtype), (*batch, minimum(m, n))),
        )

    def attributes(self, a, b):
        return (), (self.rcond,)

    def grad(self, g, a, b, *, vjp):
        if g[0] is None:
            return None, None
        tolerances = ()
        if self.rcond >= 0:
            tolerances = _tolerances(a, None, constant(self.rcond, dtypes.part_dtype(a.dtype)))
        return vjp(lambda a, b: mm(Pinv(False)(a, *tolerances), b), [a, b], [g[0]])


# -- eigenvalues


class EigResult(NamedTuple):
    """x v = v diag(w)."""

    eigenvalues: object
    eigenvectors: object


def _is_upper(name: str, UPLO: str) -> bool:
    if UPLO not in ("L", "U"):
        raise ValueRangeError(name, f"UPLO is {UPLO!r}; it must be 'L' or 'U', the triangle to read")
    return UPLO == "U"


@op(name="eigh", hidden=True)
def _eigh(x: Tensor, upper):
    return Eigh(upper)(square("eigh", x))


def eigh(x, UPLO="L"):
    """(eigenvalues, eigenvectors) of symmetric or Hermitian matrices, ascending; vectors are columns. Reads one triangle (UPLO).

    x: (*b, n, n) -> (*b, n) real, (*b, n, n)

    >>> td.linalg.eigh(td.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.round()
    tensor([1., 2.])
    """
    return EigResult(*_eigh(x, _is_upper("eigh", UPLO)))


@op(name="eigvalsh", hidden=True)
def _eigvalsh(x: Tensor, upper):
    return Eigvalsh(upper)(square("eigvalsh", x))


def eigvalsh(x, UPLO="L"):
    """Eigenvalues of symmetric or Hermitian matrices, ascending. Reads one triangle (UPLO).

    x: (*b, n, n) -> (*b, n) real

    >>> td.linalg.eigvalsh(td.tensor([[2.0, 0.0], [0.0, 1.0]])).round()
    tensor([1., 2.])
    """
    return _eigvalsh(x, _is_upper("eigvalsh", UPLO))


@op(name="eig", hidden=True)
def _eig(x: Tensor):
    return Eig()(square("eig", x))


def eig(x):
    """(eigenvalues, eigenvectors) of any square matrices, complex, in no particular order; vectors are columns of length 1.

    x: (*b, n, n) -> (*b, n) complex, (*b, n, n) complex

    >>> td.linalg.eig(td.tensor([[3.0]])).eigenvalues.dtype
    tandem.complex64
    """
    return EigResult(*_eig(x))


@op(hidden=True)
def eigvals(x: Tensor):
    """Eigenvalues of any square matrices, complex, in no particular order.

    x: (*b, n, n) -> (*b, n) complex

    >>> td.linalg.eigvals(td.tensor([[3.0]])).dtype
    tandem.complex64
    """
    return Eigvals()(square("eigvals", x))


# -- singular values


class SvdResult(NamedTuple):
    """x = U diag(S) Vh."""

    U: object
    S: object
    Vh: object


@op(name="svd", hidden=True)
def _svd(x: Tensor, full):
    return Svd(full)(matrices("svd", x))


def svd(x, full_matrices=True, *, driver=None):
    """(U, S, Vh) with x = U diag(S) Vh: unitary matrices and singular values, descending. Without full_matrices, only the columns
    of U and rows of Vh that belong to singular values. The others are not determined by x: a gradient that arrives for them makes
    that of x NaN.

    x: (*b, m, n) -> (*b, m, m), (*b, k), (*b, n, n), k = min(m, n); reduced: (*b, m, k), (*b, k), (*b, k, n)

    >>> td.linalg.svd(td.tensor([[0.0, 2.0], [1.0, 0.0]])).S.round()
    tensor([2., 1.])
    """
    return SvdResult(*_svd(x, bool(full_matrices)))  # driver: LAPACK's divide and conquer, whichever is asked for


@op(hidden=True)
def svdvals(x: Tensor, *, driver=None):
    """Singular values, descending.

    x: (*b, m, n) -> (*b, min(m, n)) real

    >>> td.linalg.svdvals(td.tensor([[0.0, 2.0], [1.0, 0.0]])).round()
    tensor([2., 1.])
    """
    return Svdvals()(matrices("svdvals", x))


class TorchSvdResult(NamedTuple):
    U: object
    S: object
    V: object


@op(name="svd", hidden=True)
def _torch_svd_parts(x: Tensor, full):
    u, s, vh = Svd(full)(matrices("svd", x))
    return u, s, adjoint(vh)


@spelled("svd")
def _torch_svd(x, some=True, compute_uv=True):
    """(U, S, V) with x = U diag(S) V^H; reduced if some. Without compute_uv, U and V are zeros. td.linalg.svd gives V^H.

    >>> td.svd(td.tensor([[0.0, 2.0], [1.0, 0.0]])).S.round()
    tensor([2., 1.])
    """
    if not compute_uv:
        values = svdvals(x)  # which says what is wrong with x, if anything is
        u, v = (F.full((*x.shape[:-2], k, k), 0, dtype=x.dtype) for k in x.shape[-2:])
        return TorchSvdResult(u, values, v)
    return TorchSvdResult(*_torch_svd_parts(x, not some))


# -- rank, pseudo-inverse, least squares


def _tolerances(x: Value, atol, rtol) -> tuple[Value, Value]:
    """(atol, rtol), each (*b), as PyTorch has them: rtol is eps * max(m, n) unless atol or rtol is given."""
    batch, dtype = x.shape[:-2], dtypes.part_dtype(x.dtype)
    if rtol is None:
        eps = 2.0**-23 if dtype is dtypes.float32 else 2.0**-52
        rtol = constant(eps, dtype) * constant(maximum(*x.shape[-2:]), dtype)
        if atol is not None:
            rtol = F.where(F.greater(cast(atol, dtype), 0), constant(0, dtype), rtol)
    atol = constant(0, dtype) if atol is None else cast(atol, dtype)
    return full_expand(atol, batch), full_expand(cast(rtol, dtype), batch)


@op(name="pinv", hidden=True)
def _pinv(x: Tensor, atol: Tensor | None, rtol: Tensor | None, hermitian):
    x = square("pinv", x) if hermitian else matrices("pinv", x)
    if x.shape[-1] == 0 or x.shape[-2] == 0:
        return F.full((*x.shape[:-2], x.shape[-1], x.shape[-2]), 0, dtype=x.dtype)
    tolerances = () if atol is None and rtol is None else _tolerances(x, atol, rtol)
    return Pinv(hermitian)(x, *tolerances)


def pinv(x, rcond=None, hermitian=False, *, rtol=None, atol=None):
    """Pseudo-inverse (Moore, Penrose). Singular values up to max(atol, rtol * the largest) count as zero; rtol is
    max(m, n) * eps unless one is given (rcond is another name for rtol). hermitian: x is symmetric (Hermitian), which is faster.

    x: (*b, m, n) -> (*b, n, m)

    >>> td.linalg.pinv(td.tensor([[2.0], [0.0]]))
    tensor([[0.5000, 0.0000]])
    """
    return _pinv(x, atol, rcond if rtol is None else rtol, bool(hermitian))


@spelled("pinverse")
def pinverse(x, rcond=1e-15):
    """Pseudo-inverse; singular values up to rcond times the largest count as zero.

    >>> td.pinverse(td.tensor([[2.0], [0.0]]))
    tensor([[0.5000, 0.0000]])
    """
    return _pinv(x, None, rcond, False)


@op(name="matrix_rank", hidden=True)
def _matrix_rank(x: Tensor, atol: Tensor | None, rtol: Tensor | None, hermitian):
    x = square("matrix_rank", x) if hermitian else matrices("matrix_rank", x)
    if x.shape[-1] == 0 or x.shape[-2] == 0:
        return F.full(x.shape[:-2], 0, dtype=dtypes.int64)
    s = F.abs(Eigvalsh(False)(x)) if hermitian else Svdvals()(x)
    atol, rtol = _tolerances(x, atol, rtol)
    bound = F.maximum(atol, rtol * F.amax(s, -1))
    return F.count_nonzero(F.greater(s, full_expand(column(bound), s.shape)), -1)


def matrix_rank(x, tol=None, hermitian=False, *, rtol=None, atol=None):
    """How many singular values are greater than max(atol, rtol * the largest); rtol is max(m, n) * eps unless one is given. tol is
    another name for atol.

    x: (*b, m, n) -> (*b) int64

    >>> td.linalg.matrix_rank(td.tensor([[1.0, 2.0], [2.0, 4.0]]))
    tensor(1)
    """
    return _matrix_rank(x, tol if atol is None else atol, rtol, bool(hermitian))


class LstsqResult(NamedTuple):
    """Least squares: residuals are the squared lengths of A x - B, where A has more rows than columns (empty elsewhere)."""

    solution: object
    residuals: object
    rank: object
    singular_values: object


@op(name="lstsq", hidden=True)
def _lstsq(A: Tensor, B: Tensor, rcond):
    vector = B.ndim == 1
    if vector:
        B = column(B)
    a, b = same_batch("lstsq", matrices("lstsq", A, "A"), matrices("lstsq", B, "B"))
    if a.shape[-2] != b.shape[-2]:
        raise ShapeError(
            "lstsq", f"A is {show_shape(a.shape)} and B {show_shape(b.shape)}; both must have the same number of rows"
        )
    x, rank, s = LstSq(rcond)(a, b)
    if a.shape[-2] > a.shape[-1]:
        rest = F.abs(mm(a, x) - b)
        residuals = F.sum(rest * rest, -2)
    else:
        residuals = F.full((0,), 0, dtype=dtypes.part_dtype(a.dtype))
    return (F.Reshape(x.shape[:-1])(x) if vector else x), residuals, rank, s


def lstsq(A, B, rcond=None, *, driver=None):
    """(solution, residuals, rank, singular_values): the x of least |A x - B|, and of those the shortest. Singular values of A under
    rcond times the largest count as zero (eps * max(m, n) unless given). `driver` is accepted; singular values are always used.

    A: (*b, m, n), B: (m) or (*b, m, k) -> (n) or (*b, n, k), ...

    >>> td.linalg.lstsq(td.tensor([[1.0], [1.0]]), td.tensor([1.0, 3.0])).solution.round()
    tensor([2.])
    """
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise ValueRangeError("lstsq", f"driver is {driver!r}; LAPACK has gels, gelsy, gelsd and gelss")
    return LstsqResult(*_lstsq(A, B, -1.0 if rcond is None else float(rcond)))
