"""Fourier transforms of pairs of real tensors, for files of runtimes without complex numbers."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.graph.ir import Type, Value
from tandem.graph.symbolic import Sym
from tandem.ops.define import Op
from tandem.ops.fft.transforms import BY_N, BY_ROOT


class FourierParts(Op):
    """The discrete Fourier transform along the last axis, of real and imaginary parts; the inverse is not divided by anything.

    re, im: (*s, n) -> (*s, n), (*s, n)
    """

    name = "fourier_parts"
    _fields = ("forward",)
    forward: bool

    def infer(self, re: Type, im: Type) -> tuple[Type, Type]:
        return re, im

    def made_of(self, kind: str, inputs):
        return self.by_products

    def by_products(self, re: Value, im: Value):
        """Two matrices, whose angles are counted in whole parts of a turn, so that they are exact for any size."""
        n = re.shape[-1]
        rows, columns = (F.Iota((n, n), axis, dtypes.int64)() for axis in (0, 1))
        size = F.Size(n, dtypes.int64)()
        angles = ((rows * columns) % size).astype(dtypes.float64) * (2 * math.pi) / size.astype(dtypes.float64)
        cosines, sines = (f(angles).astype(re.dtype) for f in (F.cos, F.sin))
        sines = sines if self.forward else -sines
        return re @ cosines + im @ sines, im @ cosines - re @ sines


def transform(re: Value, im: Value, axis: int, forward: bool, norm: int) -> tuple[Value, Value]:
    """The transform along an axis; norm: of tandem/ops/fft/transforms.py."""
    last = re.ndim - 1
    made = FourierParts(forward)(*(F.swapaxes(p, axis, last) for p in (re, im)))
    made = tuple(F.swapaxes(p, axis, last) for p in made)
    if norm not in (BY_N, BY_ROOT):
        return made
    n = re.shape[axis]
    divisor = F.Size(n, dtypes.float64)()
    divisor = (F.sqrt(divisor) if norm == BY_ROOT else divisor).astype(re.dtype)
    return tuple(p / divisor for p in made)


def power_of_two(n) -> bool:
    """Whether a size is known to be one."""
    return not isinstance(n, Sym) and n > 0 and n & (n - 1) == 0
