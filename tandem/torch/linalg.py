"""td.linalg with PyTorch's names for parameters, and its results of least squares."""

import builtins

import tandem as _tandem
from tandem import linalg as _linalg
from tandem.errors import ShapeError
from tandem.ops.extras import store as _store
from tandem.torch.adapt import named as _named

_NAMES = {
    "diagonal": "A|input",
    "eigh": "A|input UPLO",
    "eigvalsh": "A|input UPLO",
    "householder_product": "A|input tau",
    "ldl_solve": "LD pivots B",
    "lstsq": "A|input B|b|other",
    "lu_solve": "LU pivots B",
    "matrix_power": "A|input n",
    "multi_dot": "tensors",
    "solve": "A|input B|other",
    "solve_ex": "A|input B|other",
    "solve_triangular": "A|input B",
    "tensorinv": "A|input ind",
    "tensorsolve": "A|input B|other dims",
    "vector_norm": "x|input|self ord dim keepdim",
    "norm": "A|input|self ord dim keepdim",
    "matrix_norm": "A|input|self ord dim keepdim",
    "vander": "x",
}
__all__ = list(_linalg.__all__)
for _name in __all__:
    _function = getattr(_linalg, _name)
    globals()[_name] = _function if _name == "LinAlgError" else _named(
        _name, _function, *_NAMES.get(_name, "A|input|self").split()
    )  # fmt: skip


def diagonal(A, *, offset=0, dim1=-2, dim2=-1):
    """The diagonal of matrices, which are axes dim1 and dim2. A view.

    >>> td.torch.linalg.diagonal(td.eye(2))
    tensor([1., 1.])
    """
    return A.diagonal(offset, dim1, dim2)


def vecdot(x, y, *, dim=-1, out=None):
    """Inner products along an axis, which may be counted from either end; the others broadcast.

    >>> td.torch.linalg.vecdot(td.ones(2, 3), td.ones(2, 3), dim=0)
    tensor([2., 2., 2.])
    """
    axis = dim if dim < 0 else dim - builtins.max(x.ndim, y.ndim)
    made = _linalg.vecdot(x, y, axis=axis)
    return made if out is None else _store("vecdot", made, out)


def cross(input, other, *, dim=-1, out=None):
    """Cross products of vectors of 3 elements along an axis.

    >>> td.torch.linalg.cross(td.tensor([1, 0, 0]), td.tensor([0, 1, 0]))
    tensor([0, 0, 1])
    """
    if input.ndim != other.ndim:
        raise ShapeError("cross", f"input has {input.ndim} axes and other {other.ndim}; both must have as many")
    made = _linalg.cross(input, other, axis=dim)
    return made if out is None else _store("cross", made, out)


def lstsq(A=None, B=None, rcond=None, *, driver=None, out=None, input=None, b=None):
    """The x of least |A x - B|. Which of the other results there are depends on the driver, as LAPACK's do; gelsy by default.

    >>> td.torch.linalg.lstsq(td.tensor([[1.0], [1.0]]), td.tensor([[1.0], [3.0]])).rank
    tensor(1)
    """
    A, B = (input if A is None else A), (b if B is None else B)
    made = _linalg.lstsq(A, B, rcond, driver=driver)
    full_rank = bool((made.rank == A.shape[-1]).all())
    none = _tandem.empty(0, dtype=made.residuals.dtype, device=A.device)
    made = made._replace(
        residuals=made.residuals if full_rank and driver != "gelsy" and driver is not None else none,
        rank=_tandem.empty(0, dtype=_tandem.int64) if driver == "gels" else made.rank,
        singular_values=made.singular_values if driver in ("gelsd", "gelss") else none,
    )
    return made if out is None else _store("lstsq", made, out)
