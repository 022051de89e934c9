"""torch.sparse: td.sparse, and the typed constructors of old programs, `torch.sparse.FloatTensor(indices, values, size)`."""

from __future__ import annotations

from tandem import sparse as _sparse
from tandem.errors import DTypeError
from tandem.sparse import *  # noqa: F403
from tandem.torch.legacy import TYPED as _TYPED


class _Typed(type):
    """Calls make tensors of indices (ndim, n) and values (n, ...); isinstance asks for the dtype."""

    def __call__(cls, *args):
        if len(args) not in (2, 3):
            raise DTypeError(
                f"sparse.{cls.__name__}",
                f"it takes indices, values and perhaps a size; {len(args)} arguments are given",
                fix="use torch.sparse_coo_tensor(indices, values, size)",
            )
        return _sparse.sparse_coo_tensor(*args, dtype=cls.dtype)

    def __instancecheck__(cls, x):
        return isinstance(x, _sparse.SparseTensor) and x.dtype is cls.dtype


for _name, _class in _TYPED.items():
    globals()[_name] = _Typed(_name, (), {"dtype": _class.dtype, "__module__": "torch.sparse"})

__all__ = [*_sparse.__all__, *_TYPED]
