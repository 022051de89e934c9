"""Arrays in every layout that a library routine may meet, and a short way to call one."""

import ml_dtypes
import numpy as np

from tandem._runtime import library_call

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype("float32"), np.dtype("float64"), np.dtype("float16"), BFLOAT16]
INTEGERS = [np.dtype(n) for n in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")]
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 5e-3, "bfloat16": 3e-2}


def run(name, inputs, outputs, ints=(), floats=()):
    """Calls the routine; `outputs` are arrays or (shape, dtype). Returns the output arrays."""
    made = [o if isinstance(o, np.ndarray) else garbage(*o) for o in outputs]
    library_call(name, list(inputs), made, list(ints), list(floats))
    return made[0] if len(made) == 1 else made


def garbage(shape, dtype):
    """An output whose memory holds nonsense, as the allocator gives it."""
    array = np.empty(shape, dtype)
    if array.size and array.ndim:
        array.view(np.uint8).fill(0xA5)
    return array


def random(rng, shape, dtype):
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return np.asarray(rng.standard_normal(shape)).astype(dtype)


def layouts(array):
    """The same values in other memory: contiguous, reversed axes, strided, negative strides."""
    yield array
    if array.ndim:
        yield np.ascontiguousarray(array.T).T
        wide = np.repeat(array, 2, axis=-1)
        yield wide[..., ::2]
        yield np.ascontiguousarray(array[::-1])[::-1]


def assert_near(expected, actual, scale=1.0):
    tolerance = TOLERANCE.get(actual.dtype.name, 0) * scale
    kind = np.float64 if tolerance else actual.dtype
    np.testing.assert_allclose(actual.astype(kind), np.asarray(expected).astype(kind), rtol=tolerance, atol=tolerance)
