"""What variables begin with: initialiser(shape, dtype) gives a tensor of the graph."""

import math

from tandem import dtypes
from tandem.errors import ValueRangeError
from tandem.v1.arrays import ones, zeros
from tandem.v1.constants import constant
from tandem.v1.draws import random_normal, random_uniform, truncated_normal


class Initializer:
    """Base: dtype is what a variable has that does not say."""

    def __init__(self, dtype=dtypes.float32):
        self.dtype = dtypes.as_dtype(dtype)

    def make(self, shape, dtype):
        raise NotImplementedError

    def __call__(self, shape, dtype=None, partition_info=None):
        return self.make(list(shape), self.dtype if dtype is None else dtypes.as_dtype(dtype))


class zeros_initializer(Initializer):
    def make(self, shape, dtype):
        return zeros(shape, dtype)


class ones_initializer(Initializer):
    def make(self, shape, dtype):
        return ones(shape, dtype)


class constant_initializer(Initializer):
    """One value everywhere, or as many as there are elements."""

    def __init__(self, value=0, dtype=dtypes.float32, verify_shape=False):
        super().__init__(dtype)
        self.value = value

    def make(self, shape, dtype):
        return constant(self.value, dtype, shape)


class random_uniform_initializer(Initializer):
    def __init__(self, minval=0, maxval=None, seed=None, dtype=dtypes.float32):
        super().__init__(dtype)
        self.minval, self.maxval, self.seed = minval, maxval, seed

    def make(self, shape, dtype):
        return random_uniform(shape, self.minval, self.maxval, dtype, self.seed)


class random_normal_initializer(Initializer):
    draw = staticmethod(random_normal)

    def __init__(self, mean=0.0, stddev=1.0, seed=None, dtype=dtypes.float32):
        super().__init__(dtype)
        self.mean, self.stddev, self.seed = mean, stddev, seed

    def make(self, shape, dtype):
        return self.draw(shape, self.mean, self.stddev, dtype, self.seed)


class truncated_normal_initializer(random_normal_initializer):
    draw = staticmethod(truncated_normal)


class glorot_uniform_initializer(Initializer):
    """Uniform, within a bound that falls with how many numbers come in and go out; what get_variable takes unless it is told."""

    def __init__(self, seed=None, dtype=dtypes.float32):
        super().__init__(dtype)
        self.seed = seed

    def make(self, shape, dtype):
        if dtype.kind != "float":
            raise ValueRangeError(
                "glorot_uniform_initializer", f"{dtype} has no fractions", fix="use another initialiser"
            )
        limit = math.sqrt(6 / max(1, sum(_fans(shape))))
        return random_uniform(shape, -limit, limit, dtype, self.seed)


def _fans(shape) -> tuple[int, int]:
    """How many numbers each output is computed from, and each input goes to."""
    if len(shape) < 2:
        return (shape[0], shape[0]) if shape else (1, 1)
    window = math.prod(shape[:-2])
    return shape[-2] * window, shape[-1] * window


__all__ = [name for name, value in list(globals().items()) if name.endswith("_initializer")]
