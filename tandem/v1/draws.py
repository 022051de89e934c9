"""Random tensors, drawn again at each run. With a seed, a session's first run draws the same numbers as that of any other."""

import tandem as _td
from tandem import dtypes
from tandem.dtypes import float32
from tandem.errors import ValueRangeError
from tandem.v1.shapes import sizes
from tandem.v1.wrap import in_graph


def _generator(seed):
    return None if seed is None else _td.Generator(seed)


@in_graph
def random_uniform(shape, minval: float = 0, maxval: float | None = None, dtype=float32, seed=None):
    """Uniform in [minval, maxval); integers need maxval, otherwise it is 1."""
    shape, dtype = sizes("random_uniform", shape), dtypes.as_dtype(dtype)
    if dtype.kind in ("int", "uint"):
        if maxval is None:
            raise ValueRangeError("random_uniform", f"maxval is missing, which {dtype} needs", fix="pass maxval=")
        return _td.randint(minval, maxval, tuple(shape), dtype=dtype, generator=_generator(seed))
    unit = _td.rand(*shape, dtype=dtype, generator=_generator(seed))
    maxval = 1 if maxval is None else maxval
    plain = all(isinstance(v, (int, float)) for v in (minval, maxval)) and (minval, maxval) == (0, 1)
    return unit if plain else unit * (maxval - minval) + minval


@in_graph
def random_normal(shape, mean=0.0, stddev=1.0, dtype=float32, seed=None):
    """Normal with this mean and standard deviation."""
    return _td.randn(*sizes("random_normal", shape), dtype=dtype, generator=_generator(seed)) * stddev + mean


@in_graph
def truncated_normal(shape, mean=0.0, stddev=1.0, dtype=float32, seed=None):
    """Normal within two standard deviations."""
    # By inversion: uniform between the values of the distribution function at -2 and 2.
    unit = _td.rand(*sizes("truncated_normal", shape), dtype=dtype, generator=_generator(seed))
    return _td.erfinv((unit * 2 - 1) * 0.9544997) * (2**0.5 * stddev) + mean
