"""Discrete Fourier transforms along axes."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.errors import AxisError, DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Type, Value
from tandem.ops import rules
from tandem.ops.define import LibraryOp, op, register
from tandem.ops.prepare import normalize_axis, show, show_shape, to_float

NONE, BY_N, BY_ROOT = 0, 1, 2  # what a transform of n elements is divided by: nothing, n, root of n


class _Transform(LibraryOp):
    takes_complex = True
    holomorphic = False  # rules below say what becomes of complex gradients

    def rule(self, x: Type):
        rules.one_of(self, "norm", self.norm, (0, 1, 2))
        rules.need(self, x.ndim > 0, "x has no axes")
        rules.allowed(
            self, x.dtype.is_complex or x.dtype in dtypes.COMPLEX_OF, f"x is {x.dtype}; there are no transforms of it"
        )


@register
class Fft(_Transform):
    """Along several axes, complex; x may be real. Its transpose is the transform in the other direction."""

    name = "fft"
    batching = "axes"
    routine = "fft"
    axes: tuple
    forward: bool
    norm: int

    def infer(self, x: Type) -> Type:
        return x.with_dtype(dtypes.COMPLEX_OF.get(x.dtype, x.dtype))

    def attributes(self, x):
        return (self.norm, int(self.forward), *self.axes), ()

    def grad(self, g, x):
        back = Fft(self.axes, not self.forward, self.norm)(g)
        return back if x.dtype.is_complex else F.real(back)


# Note [Half spectra]
# The transform of n real numbers is its own conjugate, read backwards, and rfft keeps n // 2 + 1 of it. Seen from irfft, each kept
# element but the first (and the last, if n is even) stands for two. So the gradient of irfft is rfft with these elements doubled,
# and that of rfft is irfft with them halved.


@register
class Rfft(_Transform):
    """Of real numbers along an axis: the first n // 2 + 1 elements. See Note [Half spectra]."""

    name = "rfft"
    batching = "axis"
    routine = "rfft"
    axis: int
    norm: int
    doubled: bool
    takes = "F[*s]"

    def infer(self, x: Type) -> Type:
        shape = (*x.shape[: self.axis], x.shape[self.axis] // 2 + 1, *x.shape[self.axis + 1 :])
        return Type(dtypes.COMPLEX_OF[x.dtype], shape)

    def attributes(self, x):
        return (self.norm, self.axis, int(self.doubled)), ()

    def grad(self, g, x):
        return Irfft(self.axis, x.shape[self.axis], self.norm, not self.doubled)(g)


@register
class Irfft(_Transform):
    """n real numbers along an axis, from the first n // 2 + 1 elements of their transform. See Note [Half spectra]."""

    name = "irfft"
    batching = "axis"
    routine = "irfft"
    axis: int
    n: object  # Dim
    norm: int
    halved: bool
    takes = "?[*s]"

    def infer(self, x: Type) -> Type:
        shape = (*x.shape[: self.axis], self.n, *x.shape[self.axis + 1 :])
        return Type(dtypes.REAL_PART[x.dtype], shape)

    def rule(self, x: Type):
        super().rule(x)
        rules.allowed(self, x.dtype.is_complex, f"x is {x.dtype}; it must be complex")
        rules.size(self, "n", self.n)
        rules.need(self, x.shape[self.axis] == self.n // 2 + 1, f"n is {self.n}, and x is {x!r}")

    def attributes(self, x):
        return (self.norm, self.axis, int(self.halved)), ()

    def grad(self, g, x):
        return Rfft(self.axis, self.norm, not self.halved)(g)


# -- arguments


def _norm(name: str, norm, forward: bool) -> int:
    norm = "backward" if norm is None else norm
    if norm not in ("backward", "ortho", "forward"):
        raise ValueRangeError(name, f"norm is {norm!r}; it must be 'backward', 'ortho' or 'forward'")
    if norm == "ortho":
        return BY_ROOT
    return BY_N if (norm == "forward") == forward else NONE


def _prepare(name: str, x: Value, real: bool = False) -> Value:
    x = to_float(x)
    if x.dtype in (dtypes.float16, dtypes.bfloat16):
        raise DTypeError(
            name, f"x is {x.dtype}; there are transforms of float32, float64, complex64 and complex128 only",
            fix="convert it: x.to(td.float32)",
        )  # fmt: skip
    if real and x.dtype.is_complex:
        raise DTypeError(name, f"x is {x.dtype}; it must be real", fix="use fft, or x.real")
    if x.ndim == 0:
        raise AxisError(name, "x has no axes; at least 1 is needed")
    return x


def _resize(name: str, x: Value, axis: int, n) -> Value:
    """The first n elements along an axis, with zeros where there are fewer."""
    size = x.shape[axis]
    if n is None:
        n = size
    if n < 1:
        raise ShapeError(name, f"n is {show(n)} along axis {axis} of x {show_shape(x.shape)}; it must be at least 1")
    if n == size:
        return x
    if n < size:
        return F.slice_axis(x, axis, 0, n)
    if size == 0:
        return F.full((*x.shape[:axis], n, *x.shape[axis + 1 :]), 0, dtype=x.dtype)
    shape = (*x.shape[:axis], n, *x.shape[axis + 1 :])
    return F.Embed((0,) * x.ndim, (1,) * x.ndim, shape)(x)


def _axes(name: str, x: Value, s, axes, default=None) -> tuple[tuple[int, ...], list]:
    """(axes, a size for each, None where it stays)"""
    if axes is None:
        if s is not None:
            if len(s) > x.ndim:
                raise ShapeError(name, f"s has {len(s)} sizes and x {x.ndim} axes")
            axes = tuple(range(x.ndim - len(s), x.ndim))
        else:
            axes = tuple(range(x.ndim)) if default is None else default
    axes = (axes,) if isinstance(axes, int) else tuple(axes)
    normal = tuple(normalize_axis(name, a, x.ndim) for a in axes)
    if len(set(normal)) != len(normal):
        raise ValueRangeError(name, f"axes {axes} name an axis twice")
    if s is not None and len(s) != len(normal):
        raise ShapeError(name, f"s has {len(s)} sizes for {len(normal)} axes")
    sizes = [None] * len(normal) if s is None else [None if n == -1 else n for n in s]
    return normal, sizes


def _resize_all(name: str, x: Value, axes, sizes) -> Value:
    for axis, n in zip(axes, sizes, strict=True):
        x = _resize(name, x, axis, n)
    return x


def _as_complex(x: Value) -> Value:
    return x if x.dtype.is_complex else F.Complex()(x, F.zeros_like(x))


# -- the transforms, on values


def _complex(name: str, x: Value, s, axes, norm, forward: bool, default=None) -> Value:
    x = _prepare(name, x)
    axes, sizes = _axes(name, x, s, axes, default)
    x = _resize_all(name, x, axes, sizes)
    if not axes:
        return _as_complex(x)
    return Fft(axes, forward, _norm(name, norm, forward))(x)


def _real(name: str, x: Value, s, axes, norm, forward: bool = True, default=None) -> Value:
    """rfft along the last of the axes, then fft along the others; ihfft is the same in the other direction."""
    x = _prepare(name, x, real=True)
    axes, sizes = _axes(name, x, s, axes, default)
    if not axes:
        raise ValueRangeError(name, "there are no axes; at least 1 is needed")
    x = _resize_all(name, x, axes, sizes)
    kind = _norm(name, norm, forward)
    y = Rfft(axes[-1], kind, False)(x)
    y = y if forward else F.conj(y)
    return Fft(axes[:-1], forward, kind)(y) if len(axes) > 1 else y


def _real_result(name: str, x: Value, s, axes, norm, forward: bool = False, default=None) -> Value:
    """ifft along all axes but the last, then irfft; hfft is the same in the other direction."""
    x = _prepare(name, x)
    axes, sizes = _axes(name, x, s, axes, default)
    if not axes:
        raise ValueRangeError(name, "there are no axes; at least 1 is needed")
    last = axes[-1]
    n = 2 * (x.shape[last] - 1) if sizes[-1] is None else sizes[-1]
    if n < 1:
        raise ShapeError(
            name,
            f"n is {show(n)} along axis {last} of x {show_shape(x.shape)}; it must be at least 1",
            fix="give n, the number of real elements",
        )
    x = _resize_all(name, x, axes, [*sizes[:-1], n // 2 + 1])
    kind = _norm(name, norm, forward)
    x = _as_complex(x)
    if len(axes) > 1:
        x = Fft(axes[:-1], forward, kind)(x)
    return Irfft(last, n, kind, False)(F.conj(x) if forward else x)


def _one(n) -> tuple | None:
    return None if n is None else (n,)


# -- along one axis


@op(hidden=True)
def fft(x: Tensor, n: Int | None = None, axis=-1, norm="backward"):
    """Discrete Fourier transform along an axis: y[k] = sum of x[j] exp(-2 pi i j k / n).

    n: the length, to which x is cut or filled up with zeros. norm: what is divided by n, the "backward" transform or the "forward"
    one; or "ortho", both by its root.

    x: (*a, m, *b) -> (*a, n, *b) complex

    >>> td.fft.fft(td.tensor([1.0, 0.0, 0.0, 0.0]))
    tensor([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j])
    """
    return _complex("fft", x, _one(n), axis, norm, True)


@op(hidden=True)
def ifft(x: Tensor, n: Int | None = None, axis=-1, norm="backward"):
    """The inverse of fft.

    x: (*a, m, *b) -> (*a, n, *b) complex

    >>> td.fft.ifft(td.fft.fft(td.tensor([1.0, 2.0]))).real
    tensor([1., 2.])
    """
    return _complex("ifft", x, _one(n), axis, norm, False)


@op(hidden=True)
def rfft(x: Tensor, n: Int | None = None, axis=-1, norm="backward"):
    """fft of real numbers: the first n // 2 + 1 elements, of which the others are the conjugates.

    x: (*a, m, *b) real -> (*a, n // 2 + 1, *b) complex

    >>> td.fft.rfft(td.tensor([1.0, 0.0, 0.0, 0.0])).shape
    (3,)
    """
    return _real("rfft", x, _one(n), axis, norm)


@op(hidden=True)
def irfft(x: Tensor, n: Int | None = None, axis=-1, norm="backward"):
    """The inverse of rfft: n real numbers, 2 * (m - 1) unless given.

    x: (*a, m, *b) -> (*a, n, *b) real

    >>> td.fft.irfft(td.fft.rfft(td.tensor([1.0, 2.0, 3.0])), n=3).round()
    tensor([1., 2., 3.])
    """
    return _real_result("irfft", x, _one(n), axis, norm)


@op(hidden=True)
def hfft(x: Tensor, n: Int | None = None, axis=-1, norm="backward"):
    """fft of a signal that is its own conjugate read backwards, given its first n // 2 + 1 elements: real.

    x: (*a, m, *b) -> (*a, n, *b) real

    >>> td.fft.hfft(td.tensor([1.0, 0.0, 0.0]))
    tensor([1., 1., 1., 1.])
    """
    return _real_result("hfft", x, _one(n), axis, norm, forward=True)


@op(hidden=True)
def ihfft(x: Tensor, n: Int | None = None, axis=-1, norm="backward"):
    """The inverse of hfft: the first n // 2 + 1 elements.

    x: (*a, m, *b) real -> (*a, n // 2 + 1, *b) complex

    >>> td.fft.ihfft(td.tensor([1.0, 1.0, 1.0, 1.0])).shape
    (3,)
    """
    return _real("ihfft", x, _one(n), axis, norm, forward=False)


# -- along several axes


_KINDS = {
    "fftn": (_complex, True),
    "ifftn": (_complex, False),
    "rfftn": (_real, True),
    "irfftn": (_real_result, False),
    "hfftn": (_real_result, True),
    "ihfftn": (_real, False),
}


@op(name="fftn", hidden=True)
def _several(x: Tensor, s: Ints | None, name, axes, norm):
    transform, forward = _KINDS[name.replace("2", "n")]
    return transform(name, x, s, axes, norm, forward)


def _over_axes(name, x, s, axes, norm, dim):
    axes = axes if dim is None else dim
    if isinstance(axes, list):
        axes = tuple(axes)
    if s is not None:
        s = tuple(s) if isinstance(s, (tuple, list)) else (s,)
    return _several(x, s, name, axes, norm)


def fftn(x, s=None, axes=None, norm="backward", *, dim=None):
    """fft along several axes, all by default; s gives their lengths.

    >>> td.fft.fftn(td.ones(2, 2)).real
    tensor([[4., 0.],
            [0., 0.]])
    """
    return _over_axes("fftn", x, s, axes, norm, dim)


def ifftn(x, s=None, axes=None, norm="backward", *, dim=None):
    """The inverse of fftn.

    >>> td.fft.ifftn(td.fft.fftn(td.ones(2, 2))).real
    tensor([[1., 1.],
            [1., 1.]])
    """
    return _over_axes("ifftn", x, s, axes, norm, dim)


def rfftn(x, s=None, axes=None, norm="backward", *, dim=None):
    """rfft along the last of several axes, all by default, and fft along the others; s gives the lengths.

    >>> td.fft.rfftn(td.ones(4, 4)).shape
    (4, 3)
    """
    return _over_axes("rfftn", x, s, axes, norm, dim)


def irfftn(x, s=None, axes=None, norm="backward", *, dim=None):
    """The inverse of rfftn; s gives the lengths of the result, the last of which is 2 * (m - 1) otherwise.

    >>> td.fft.irfftn(td.fft.rfftn(td.ones(4, 4))).shape
    (4, 4)
    """
    return _over_axes("irfftn", x, s, axes, norm, dim)


def hfftn(x, s=None, axes=None, norm="backward", *, dim=None):
    """hfft along the last of several axes, all by default, and fft along the others; s gives the lengths of the result.

    >>> td.fft.hfftn(td.ones(4, 3)).shape
    (4, 4)
    """
    return _over_axes("hfftn", x, s, axes, norm, dim)


def ihfftn(x, s=None, axes=None, norm="backward", *, dim=None):
    """The inverse of hfftn.

    >>> td.fft.ihfftn(td.ones(4, 4)).shape
    (4, 3)
    """
    return _over_axes("ihfftn", x, s, axes, norm, dim)


def fft2(x, s=None, axes=(-2, -1), norm="backward", *, dim=None):
    """fft along two axes, the last ones by default.

    >>> td.fft.fft2(td.ones(3, 2, 2)).shape
    (3, 2, 2)
    """
    return _over_axes("fft2", x, s, axes, norm, dim)


def ifft2(x, s=None, axes=(-2, -1), norm="backward", *, dim=None):
    """The inverse of fft2.

    >>> td.fft.ifft2(td.ones(3, 2, 2)).shape
    (3, 2, 2)
    """
    return _over_axes("ifft2", x, s, axes, norm, dim)


def rfft2(x, s=None, axes=(-2, -1), norm="backward", *, dim=None):
    """rfftn along two axes, the last ones by default.

    >>> td.fft.rfft2(td.ones(3, 4, 4)).shape
    (3, 4, 3)
    """
    return _over_axes("rfft2", x, s, axes, norm, dim)


def irfft2(x, s=None, axes=(-2, -1), norm="backward", *, dim=None):
    """The inverse of rfft2.

    >>> td.fft.irfft2(td.ones(3, 4, 3)).shape
    (3, 4, 4)
    """
    return _over_axes("irfft2", x, s, axes, norm, dim)


def hfft2(x, s=None, axes=(-2, -1), norm="backward", *, dim=None):
    """hfftn along two axes, the last ones by default.

    >>> td.fft.hfft2(td.ones(3, 4, 3)).shape
    (3, 4, 4)
    """
    return _over_axes("hfft2", x, s, axes, norm, dim)


def ihfft2(x, s=None, axes=(-2, -1), norm="backward", *, dim=None):
    """The inverse of hfft2.

    >>> td.fft.ihfft2(td.ones(3, 4, 4)).shape
    (3, 4, 3)
    """
    return _over_axes("ihfft2", x, s, axes, norm, dim)
