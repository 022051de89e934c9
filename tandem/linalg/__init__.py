"""Linear algebra: the `linalg` extension of the Array API standard, and PyTorch's names beyond it. All of it batched over leading
axes and differentiable; see docs/linalg_fft.md.

>>> td.linalg.solve(td.tensor([[2.0, 0.0], [0.0, 4.0]]), td.tensor([2.0, 8.0]))
tensor([1., 2.])
"""

from tandem.errors import LinAlgError
from tandem.ops import matmul, matrix_transpose, outer, tensordot, vecdot, vector_norm
from tandem.ops.linalg.ldl import ldl_factor, ldl_factor_ex, ldl_solve
from tandem.ops.linalg.norms import cond, matrix_norm, norm
from tandem.ops.linalg.products import cross, diagonal, matrix_exp, matrix_power, multi_dot, trace, vander
from tandem.ops.linalg.qr import householder_product, qr
from tandem.ops.linalg.solve import (
    det,
    inv,
    inv_ex,
    lu,
    lu_factor,
    lu_factor_ex,
    lu_solve,
    slogdet,
    solve,
    solve_ex,
    tensorinv,
    tensorsolve,
)
from tandem.ops.linalg.spectral import eig, eigh, eigvals, eigvalsh, lstsq, matrix_rank, pinv, svd, svdvals
from tandem.ops.linalg.triangular import cholesky, cholesky_ex, cholesky_inverse, cholesky_solve, solve_triangular

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cholesky_inverse", "cholesky_solve", "cond", "cross", "det", "diagonal", "eig",
    "eigh", "eigvals", "eigvalsh", "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex", "ldl_solve",
    "lstsq", "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power",
    "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "solve_ex",
    "solve_triangular", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace", "vander", "vecdot", "vector_norm",
]  # fmt: skip
