"""Fourier transforms on CUDA devices: all of them made of complex transforms of dense lines, which cuFFT computes."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.codegen.buffer import Buffer, allocate, dense_strides, is_one, same
from tandem.codegen.cuda.nests import copy
from tandem.codegen.schedule import LibraryStep
from tandem.graph.symbolic import product
from tandem.ops.define import LibraryOp, register
from tandem.ops.fft.transforms import BY_N, NONE, Fft, Irfft, Rfft
from tandem.ops.prepare import cast, constant, full_expand


@register
class FftLines(LibraryOp):
    """Along the last axis, without a factor (src/library/cuda/fft.cc)."""

    name = "fft_lines"
    routine = "fft_lines"
    takes_complex = True
    holomorphic = False
    forward: bool

    def infer(self, x):
        return x

    def attributes(self, x):
        return (int(self.forward),), ()


def _row_major(x: Buffer) -> bool:
    return all(is_one(n) or same(s, t) for n, s, t in zip(x.shape, x.strides, dense_strides(x.shape)))


def fft_lines(fusion, step) -> list:
    """The call of cuFFT, between copies where lines do not lie one after the other."""
    x, y = step.inputs[0], step.outputs[0]
    steps = []
    if not _row_major(x):
        x = allocate(x.dtype, x.shape)
        steps.append(copy(fusion, step.inputs[0], x, step.node))
    made = y if _row_major(y) else allocate(y.dtype, y.shape)
    steps.append(LibraryStep("cuda.fft_lines", [x], [made], step.ints, step.floats, step.node))
    if made is not y:
        steps.append(copy(fusion, made, y, step.node))
    return steps


def _along(x, axis: int, forward: bool):
    """The transform along an axis, which is the last one for cuFFT."""
    if axis == x.ndim - 1:
        return FftLines(forward)(x)
    order = [a for a in range(x.ndim) if a != axis] + [axis]
    back = [order.index(a) for a in range(x.ndim)]
    return F.Permute(tuple(back))(FftLines(forward)(F.Permute(tuple(order))(x)))


def _scaled(y, norm: int, n):
    if norm == NONE:
        return y
    part = dtypes.REAL_PART.get(y.dtype, y.dtype)
    size = cast(F.Size(n, dtypes.int64)(), part)
    factor = F.reciprocal(size if norm == BY_N else F.sqrt(size))
    return y * full_expand(F.Reshape((1,) * y.ndim)(cast(factor, y.dtype)), y.shape)


def fft(op: Fft, x):
    y = cast(x, dtypes.COMPLEX_OF.get(x.dtype, x.dtype))
    for axis in op.axes:
        y = _along(y, axis, op.forward)
    return _scaled(y, op.norm, product([x.shape[a] for a in op.axes]))


def _single(count, n):
    """Which elements of half a spectrum of n numbers stand for themselves only: the first, and the last of an even n."""
    place = F.Iota((count,), 0, dtypes.int64)()
    last = F.equal(F.multiply(place, constant(2, dtypes.int64)), F.Size(n, dtypes.int64)())
    return F.logical_or(F.equal(place, constant(0, dtypes.int64)), last)


def _weighed(x, axis: int, n, weight: float):
    """Elements of half a spectrum that stand for two, times a weight. See Note [Half spectra]."""
    part = dtypes.REAL_PART[x.dtype]
    factor = F.where(_single(x.shape[axis], n), constant(1.0, part), constant(weight, part))
    shape = tuple(x.shape[axis] if a == axis else 1 for a in range(x.ndim))
    return x * full_expand(F.Reshape(shape)(cast(factor, x.dtype)), x.shape)


def rfft(op: Rfft, x):
    n = x.shape[op.axis]
    y = _along(cast(x, dtypes.COMPLEX_OF[x.dtype]), op.axis, True)
    y = F.slice_axis(y, op.axis, 0, n // 2 + 1)
    return _scaled(_weighed(y, op.axis, n, 2.0) if op.doubled else y, op.norm, n)


def irfft(op: Irfft, x):
    n, axis = op.n, op.axis
    if op.halved:
        x = _weighed(x, axis, n, 0.5)
    x = F.slice_axis(x, axis, 0, n // 2 + 1)
    # The first element, and the last of an even number, are real in the transform of real numbers.
    shape = tuple(x.shape[axis] if a == axis else 1 for a in range(x.ndim))
    single = full_expand(F.Reshape(shape)(_single(x.shape[axis], n)), x.shape)
    x = F.where(single, cast(F.real(x), x.dtype), x)
    rest = F.slice_axis(x, axis, 1, n - n // 2 - 1)
    whole = F.concat([x, F.conj(F.flip(rest, axis))], axis)
    return _scaled(F.real(_along(whole, axis, False)), op.norm, n)


FORMULAS = {Fft: fft, Rfft: rfft, Irfft: irfft}
