"""Short-time Fourier transforms: of overlapping frames of a signal."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.ops.define import op, public
from tandem.ops.fft.transforms import BY_N, BY_ROOT, NONE, Fft, Irfft, Rfft
from tandem.ops.prepare import cast, constant, full_expand, show, show_shape


def _window(name: str, window: Value | None, win_length: int, n_fft: int, dtype) -> Value:
    """The window in the middle of n_fft elements."""
    if window is None:
        window = F.full((win_length,), 1, dtype=dtype)
    if window.ndim != 1 or window.shape[0] != win_length:
        raise ShapeError(name, f"window is {show_shape(window.shape)}; it must have win_length = {win_length} elements")
    window = cast(window, dtype) if window.dtype.is_complex == dtype.is_complex else window
    if win_length < n_fft:
        window = F.Embed(((n_fft - win_length) // 2,), (1,), (n_fft,))(window)
    return window


def _lengths(name: str, n_fft, hop_length, win_length) -> tuple[int, int, int]:
    n_fft = int(n_fft)
    hop_length = n_fft // 4 if hop_length is None else int(hop_length)
    win_length = n_fft if win_length is None else int(win_length)
    if n_fft < 1 or hop_length < 1 or not 0 < win_length <= n_fft:
        raise ValueRangeError(
            name,
            f"n_fft is {n_fft}, hop_length {hop_length} and win_length {win_length}; all must be positive, and win_length at "
            "most n_fft",
        )
    return n_fft, hop_length, win_length


@op(name="stft", hidden=True)
def _stft(x: Tensor, window: Tensor | None, n_fft, hop, win_length, center, pad_mode, normalized, onesided):
    if not x.dtype.is_inexact or x.dtype in (dtypes.float16, dtypes.bfloat16):
        raise DTypeError("stft", f"x is {x.dtype}; it must be float32, float64 or complex")
    if x.ndim not in (1, 2):
        raise ShapeError("stft", f"x is {show_shape(x.shape)}; it must be a signal (n) or a batch of them (b, n)")
    single = x.ndim == 1
    if single:
        x = F.Reshape((1, x.shape[0]))(x)
    if center:
        if x.shape[-1] <= n_fft // 2 and pad_mode == "reflect":
            raise ShapeError(
                "stft", f"x has {show(x.shape[-1])} elements; centred frames of {n_fft} need more than {n_fft // 2}"
            )
        x = F.pad(x, (n_fft // 2, n_fft // 2), mode=pad_mode)
    if x.shape[-1] < n_fft:
        raise ShapeError("stft", f"x has {show(x.shape[-1])} elements, fewer than one frame of n_fft = {n_fft}")
    window = _window("stft", window, win_length, n_fft, x.dtype)
    frames = frame(x, n_fft, hop)
    frames = frames * window
    norm = BY_ROOT if normalized else NONE
    if onesided:
        if frames.dtype.is_complex:
            raise DTypeError("stft", "onesided transforms are of real signals and windows", fix="pass onesided=False")
        y = Rfft(2, norm, False)(frames)
    else:
        y = Fft((2,), True, norm)(frames)
    y = F.Permute((0, 2, 1))(y)
    return F.Reshape(y.shape[1:])(y) if single else y


def frame(x: Value, size: int, hop: int) -> Value:
    """(b, n) -> (b, frames, size): elements hop * frame + i."""
    count = (x.shape[-1] - size) // hop + 1
    shape = (x.shape[0], count, size)
    rows, frames, inner = (F.Iota(shape, a, dtypes.int64)() for a in range(3))
    return F.Gather()(x, rows, frames * constant(hop, dtypes.int64) + inner)


def overlap_add(frames: Value, hop: int) -> Value:
    """(b, frames, size) -> (b, n): the transpose of frame."""
    batch, count, size = frames.shape
    shape = frames.shape
    rows, number, inner = (F.Iota(shape, a, dtypes.int64)() for a in range(3))
    total = F.full((batch, size + hop * (count - 1)), 0, dtype=frames.dtype)
    return F.Scatter("add")(total, frames, rows, number * constant(hop, dtypes.int64) + inner)


@public(method=True)
def stft(x: Tensor, n_fft, hop_length=None, win_length=None, window=None, center=True, pad_mode="reflect", normalized=False,
         onesided=None, return_complex=None, align_to_window=None):  # fmt: skip
    """Short-time Fourier transform: of frames of n_fft elements, hop_length apart (n_fft // 4 unless given), times a window of
    win_length elements. With center, frames stand around their positions, and x is padded for that. onesided keeps n_fft // 2 + 1
    frequencies (the default for real signals). Frames are as wide as n_fft; align_to_window says nothing more.

    x: (n) or (b, n) -> (frequencies, frames) or (b, frequencies, frames) complex; a last axis (re, im) if return_complex is False

    >>> td.stft(td.ones(16), 8, return_complex=True).shape
    (5, 9)
    """
    n_fft, hop, win_length = _lengths("stft", n_fft, hop_length, win_length)
    is_complex = x.dtype.is_complex or (window is not None and window.dtype.is_complex)
    onesided = not is_complex if onesided is None else bool(onesided)
    y = _stft(x, window, n_fft, hop, win_length, bool(center), pad_mode, bool(normalized), onesided)
    return F.view_as_real(y) if return_complex is False else y


@op(name="istft", hidden=True)
def _istft(
    x: Tensor,
    window: Tensor | None,
    length: Int | None,
    n_fft,
    hop,
    win_length,
    center,
    normalized,
    onesided,
    return_complex,
):
    if not x.dtype.is_complex:
        raise DTypeError("istft", f"x is {x.dtype}; it must be complex", fix="td.view_as_complex(x)")
    if x.ndim not in (2, 3):
        raise ShapeError(
            "istft", f"x is {show_shape(x.shape)}; it must be (frequencies, frames) or (b, frequencies, frames)"
        )
    single = x.ndim == 2
    if single:
        x = F.Reshape((1, *x.shape))(x)
    wanted = n_fft // 2 + 1 if onesided else n_fft
    if x.shape[1] != wanted:
        raise ShapeError("istft", f"x has {show(x.shape[1])} frequencies; n_fft = {n_fft} makes {wanted}")
    norm = BY_ROOT if normalized else BY_N
    x = F.Permute((0, 2, 1))(x)
    if return_complex and not onesided:
        frames = Fft((2,), False, norm)(x)
    else:  # a real signal: the other frequencies are conjugates of these
        frames = Irfft(2, n_fft, norm, False)(x if onesided else F.slice_axis(x, 2, 0, n_fft // 2 + 1))
    window = _window("istft", window, win_length, n_fft, dtypes.part_dtype(frames.dtype))
    total = overlap_add(frames * window, hop)
    envelope = overlap_add(full_expand(window * window, (1, *frames.shape[1:])), hop)
    start = n_fft // 2 if center else 0
    size = total.shape[1]
    end = size - n_fft // 2 if center and length is None else size
    count = end - start if length is None else length
    kept = size - start if count > size - start else count
    total, envelope = (F.slice_axis(v, 1, start, kept) for v in (total, envelope))
    y = total / envelope
    if kept < count:
        y = F.Embed((0, 0), (1, 1), (y.shape[0], count))(y)
    y = F.Reshape(y.shape[1:])(y) if single else y
    return y, F.amin(F.abs(envelope)) if kept > 0 else F.full((), 1, dtype=dtypes.part_dtype(frames.dtype))


@public(method=True)
def istft(x: Tensor, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, onesided=None,
          length=None, return_complex=False):  # fmt: skip
    """The inverse of stft, by least squares: frames times the window are added up, and divided by the sum of its squares.

    x: (frequencies, frames) or (b, frequencies, frames) complex -> (n) or (b, n)

    >>> td.istft(td.stft(td.ones(16), 8, return_complex=True), 8).round()
    tensor([1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1.])
    """
    n_fft, hop, win_length = _lengths("istft", n_fft, hop_length, win_length)
    onesided = not return_complex and x.shape[-2] != n_fft if onesided is None else bool(onesided)
    y, least = _istft(
        x, window, length, n_fft, hop, win_length, bool(center), bool(normalized), onesided, bool(return_complex)
    )
    if isinstance(least, _runtime.Tensor) and not float(least) > 1e-11:  # not known yet where a graph is being built
        raise ValueRangeError(
            "istft",
            "frames times the window leave gaps: the sum of its squares is 0 somewhere",
            fix="use a smaller hop_length, a window that is not 0 there, or center=True",
        )
    return y
