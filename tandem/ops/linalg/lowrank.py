"""A few singular values or eigenvalues of large matrices."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.ops.define import op
from tandem.ops.linalg.prepare import adjoint, same_batch, spelled, square
from tandem.ops.linalg.qr import qr
from tandem.ops.linalg.spectral import Eigh, TorchSvdResult, svd
from tandem.ops.linalg.triangular import ADJOINT, Cholesky, triangular_solution
from tandem.ops.prepare import show


def _conj_transposed(x):
    x = F.matrix_transpose(x)
    return F.conj(x) if x.dtype.is_complex else x


@spelled("svd_lowrank", method=False)
def svd_lowrank(A, q=6, niter=2, M=None):
    """(U, S, V): the q largest singular values of A - M, nearly, and their vectors, from random projections (Halko, Martinsson,
    Tropp 2009). niter more rounds make them better.

    A, M: (*b, m, n) -> (*b, m, q), (*b, q), (*b, n, q)

    >>> td.svd_lowrank(td.ones(5, 4), q=2).S.shape
    (2,)
    """
    m, n = _sizes("svd_lowrank", A, q, niter)
    if not 0 <= q <= min(m, n):
        raise ValueRangeError("svd_lowrank", f"q is {q}; it must be from 0 to {min(m, n)}, the smaller size of A")
    a = A if M is None else A - M
    wide = m < n
    if wide:
        a = _conj_transposed(a)
    start = F.randn((a.shape[-1], q), dtype=a.dtype)
    basis = qr(F.matmul(a, start)).Q
    for _ in range(niter):
        basis = qr(F.matmul(_conj_transposed(a), basis)).Q
        basis = qr(F.matmul(a, basis)).Q
    u, s, vh = svd(F.matmul(_conj_transposed(basis), a), full_matrices=False)
    u, v = F.matmul(basis, u), _conj_transposed(vh)
    return TorchSvdResult(v, s, u) if wide else TorchSvdResult(u, s, v)


@spelled("pca_lowrank", method=False)
def pca_lowrank(A, q=None, center=True, niter=2):
    """(U, S, V): principal components of the rows of A, columns of V, from random projections; rows are centred first, if asked.

    A: (*b, m, n) -> (*b, m, q), (*b, q), (*b, n, q)

    >>> td.pca_lowrank(td.ones(5, 4), q=2).V.shape
    (4, 2)
    """
    m, n = _sizes("pca_lowrank", A, 0 if q is None else q, niter)
    q = min(6, m, n) if q is None else q
    return svd_lowrank(A - F.mean(A, -2, keepdims=True) if center else A, q, niter)


def _sizes(name: str, a, q, niter) -> tuple:
    """Rows and columns, once it is clear that there are such."""
    if not isinstance(a, (_runtime.Tensor, Value)):
        raise DTypeError(name, f"A is of type {type(a).__name__}", fix="give a tensor of matrices")
    if a.ndim < 2:
        raise ShapeError(name, f"A is {show(a.shape)}; matrices have two axes")
    for what, number in (("q", q), ("niter", niter)):
        if not isinstance(number, int):
            raise DTypeError(name, f"{what} is of type {type(number).__name__}; it must be a whole number")
    return a.shape[-2:]


@op(name="lobpcg", hidden=True)
def _extreme_eigenvalues(A: Tensor, B: Tensor | None, k, largest):
    a = square("lobpcg", A, "A")
    if B is None:
        w, v = Eigh(False)(a)
    else:  # a x = w b x is (l^-1 a l^-H) y = w y, with x = l^-H y
        a, b = same_batch("lobpcg", a, square("lobpcg", B, "B"))
        l = Cholesky(True)(b)[0]
        half = triangular_solution("lobpcg", l, a, False, True, False)
        w, y = Eigh(False)(adjoint(triangular_solution("lobpcg", l, adjoint(half), False, True, False)))
        v = triangular_solution("lobpcg", l, y, False, True, False, ADJOINT)
    n = a.shape[-1]
    if k > n:
        raise ShapeError("lobpcg", f"k is {k}, but A has {show(n)} eigenvalues")
    start = n - k if largest else 0
    w, v = F.slice_axis(w, -1, start, k), F.slice_axis(v, -1, start, k)
    return (F.flip(w, -1), F.flip(v, -1)) if largest else (w, v)


@spelled("lobpcg", method=False)
def lobpcg(A, k=None, B=None, X=None, n=None, iK=None, niter=None, tol=None, largest=None, method=None, tracker=None,
           ortho_iparams=None, ortho_fparams=None, ortho_bparams=None):  # fmt: skip
    """(eigenvalues, eigenvectors): the k largest (or smallest) of symmetric A x = w B x, with B positive definite. A is dense, so
    that they are computed exactly; what steers an iteration (iK, niter, tol, method, and X but for its columns) is not needed.

    A, B: (*b, n, n) -> (*b, k), (*b, n, k)

    >>> td.lobpcg(td.diag(td.tensor([1.0, 3.0, 2.0])), k=2)[0].round()
    tensor([3., 2.])
    """
    if k is None:
        k = n if n is not None else 1 if X is None else X.shape[-1]
    return _extreme_eigenvalues(A, B, int(k), True if largest is None else bool(largest))
