"""td.linalg with PyTorch's names for parameters."""

from tandem import linalg as _linalg
from tandem.torch.adapt import named as _named

_NAMES = {
    "cross": "input|A other|B",
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
    "vecdot": "x y",
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
