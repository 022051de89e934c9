"""Arrays that are awkward to share."""

import ml_dtypes
import numpy as np

from tandem import dtypes

NUMPY_DTYPES = [np.dtype(t.name if t.name != "bfloat16" else ml_dtypes.bfloat16) for t in dtypes.ALL]


def sample(dtype, shape=(3, 4)):
    values = np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape)
    return (values % 2 == 0) if dtype == np.bool_ else values.astype(dtype)


LAYOUTS = {
    "contiguous": lambda a: a,
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1, ::-1],
    "steps": lambda a: a[::2, 1::2],
    "negative step": lambda a: a[:, ::-2],
    "broadcast": lambda a: np.broadcast_to(a[0], (5, a.shape[1])),
    "zero-d": lambda a: a[1, 2, ...],
    "empty": lambda a: a[:0],
    "empty inside": lambda a: a[:, 2:2],
    "one": lambda a: a[1:2, 1:2],
}
