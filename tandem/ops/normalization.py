"""Normalisation by mean and deviation: over trailing axes, channels' batches, groups of channels."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Type, Value
from tandem.graph.symbolic import product
from tandem.ops import rules
from tandem.ops.define import Composite, op, public, register, tracing
from tandem.ops.precision import in_float32, wide_dtype, widen
from tandem.ops.prepare import (
    cast,
    constant,
    full_expand,
    normalize_axes,
    normalize_axis,
    show,
    show_shape,
    to_float,
)


def _mean(x: Value, axes) -> Value:
    return F.Reduce("sum", axes)(x) / constant(product(x.shape[a] for a in axes), x.dtype)


def _share(g: Value, x: Value, axes) -> Value:
    """What a gradient of a mean over axes is for each of the elements."""
    return full_expand(g / constant(product(x.shape[a] for a in axes), g.dtype), x.shape)


def _scale(square: Value, eps: float) -> Value:
    return constant(1, square.dtype) / F.Sqrt()(square + constant(eps, square.dtype))


def _moments(x: Value, axes, eps: float) -> tuple[Value, Value, Value]:
    wide = cast(x, wide_dtype(x.dtype))
    mean = _mean(wide, axes)
    if x.dtype.itemsize == 2:  # float32 has bits to spare for 16-bit numbers: one pass over memory is enough
        variance = F.maximum(_mean(wide * wide, axes) - mean * mean, constant(0, mean.dtype))
    else:
        centred = wide - full_expand(mean, x.shape)
        variance = _mean(centred * centred, axes)
    return mean, variance, _scale(variance, eps)


def _moments_grads(g, x: Value, mean: Value, scale: Value, axes) -> list[Value]:
    """The terms of x's gradient that come through its mean, variance and 1 / sqrt(variance + eps)."""
    g_mean, g_variance, g_scale = g
    if g_scale is not None:
        by_variance = g_scale * scale * scale * scale * -0.5
        g_variance = by_variance if g_variance is None else g_variance + by_variance
    parts = []
    if g_mean is not None:
        parts.append(_share(g_mean, x, axes))
    if g_variance is not None:
        parts.append(_share(g_variance * 2, x, axes) * (cast(x, mean.dtype) - full_expand(mean, x.shape)))
    return parts


@register
class Normalize(Composite):
    """(x - mean) / sqrt(variance + eps) * weight + bias; also mean, variance and 1 / sqrt(variance + eps), over axes, which stay
    with size 1 in them.

    weight and bias (if `weighted`, if `biased`) have x's rank, and size 1 along `shared`: those axes are either `axes` (batch
    normalisation) or all others (layer normalisation). Backward reads x and its gradient for the sums, and once more for the
    result.
    """

    name = "normalize"
    axes: tuple
    shared: tuple
    eps: float
    weighted: bool
    biased: bool
    sparse_grads = True
    takes = "F[*s] ?[*w]..."

    def infer(self, x: Type, *_):
        stats = Type(wide_dtype(x.dtype), tuple(1 if i in self.axes else d for i, d in enumerate(x.shape)))
        return Type(x.dtype, x.shape), stats, stats, stats

    def rule(self, x: Type, *parameters: Type):
        rules.distinct_axes(self, self.shared, x.ndim)
        rules.allowed(
            self, len(parameters) == self.weighted + self.biased, f"there are {len(parameters)} weights and biases"
        )
        for p in parameters:
            rules.allowed(self, p.dtype in rules.FLOATS, f"a weight or bias is {p.dtype}; it must be a float")
            fits = p.ndim == x.ndim and all(
                m == (1 if i in self.shared else n) for i, (m, n) in enumerate(zip(p.shape, x.shape, strict=True))
            )
            rules.need(
                self, fits, f"x is {x!r}, and a weight or bias of it {p!r}; it must have size 1 along {self.shared}"
            )

    def _parameter(self, x: Value, v: Value) -> Value:
        return cast(v, wide_dtype(x.dtype))

    def expand(self, x, *parameters):
        mean, variance, scale = _moments(x, self.axes, self.eps)
        wide, spread = cast(x, mean.dtype), lambda v: full_expand(v, x.shape)
        weight = self._parameter(x, parameters[0]) if self.weighted else None
        bias = self._parameter(x, parameters[-1]) if self.biased else None
        if self.shared != self.axes:
            y = (wide - spread(mean)) * spread(scale)
            y = y if weight is None else y * spread(weight)
            y = y if bias is None else y + spread(bias)
        else:
            factor = scale if weight is None else scale * weight
            if x.dtype.itemsize == 2:  # as above: float32 has bits to spare, and one product per element is enough
                shift = -(mean * factor) if bias is None else bias - mean * factor
                y = wide * spread(factor) + spread(shift)
            else:
                y = (wide - spread(mean)) * spread(factor)
                y = y if bias is None else y + spread(bias)
        return cast(y, x.dtype), mean, variance, scale

    def grad(self, g, x, *parameters, out):
        g_y, *g_stats = g
        _, mean, _, scale = out
        parts, grads = _moments_grads(g_stats, x, mean, scale, self.axes), [None] * len(parameters)
        if g_y is not None:
            by_x, *by_parameters = (self._grad_batch if self.shared == self.axes else self._grad_rows)(
                cast(g_y, mean.dtype), x, parameters, mean, scale
            )
            parts.append(by_x)
            if self.weighted:
                grads[0] = cast(by_parameters[0], parameters[0].dtype)
            if self.biased:
                grads[-1] = cast(by_parameters[1], parameters[-1].dtype)
        g_x = parts[0]
        for part in parts[1:]:
            g_x = g_x + part
        return cast(g_x, x.dtype), *grads

    def _count(self, x: Value, dtype) -> Value:
        return constant(product(x.shape[a] for a in self.axes), dtype)

    def _grad_batch(self, g, x, parameters, mean, scale):
        """By x, weight and bias, from two sums: everything else is done once per channel, or is one product for each of x and g."""
        wide, spread = cast(x, mean.dtype), lambda v: full_expand(v, x.shape)
        total = F.Reduce("sum", self.axes)(g)
        moment = F.Reduce("sum", self.axes)(g * (wide - spread(mean)))
        count = self._count(x, mean.dtype)
        shift, slope = total / count, moment * scale * scale / count
        factor = scale * self._parameter(x, parameters[0]) if self.weighted else scale
        if x.dtype.itemsize == 2:
            by_x = g * spread(factor) - wide * spread(factor * slope) + spread(factor * (mean * slope - shift))
        else:
            by_x = (g - spread(shift) - (wide - spread(mean)) * spread(slope)) * spread(factor)
        return by_x, moment * scale, total

    def _grad_rows(self, g, x, parameters, mean, scale):
        spread = lambda v: full_expand(v, x.shape)
        standard = (cast(x, mean.dtype) - spread(mean)) * spread(scale)
        h = g * spread(self._parameter(x, parameters[0])) if self.weighted else g
        count = self._count(x, mean.dtype)
        shift, slope = (F.Reduce("sum", self.axes)(v) / count for v in (h, h * standard))
        by_x = (h - spread(shift) - standard * spread(slope)) * spread(scale)
        by_weight = F.Reduce("sum", self.shared)(g * standard) if self.weighted else None
        return by_x, by_weight, F.Reduce("sum", self.shared)(g) if self.biased else None


@register
class InverseRootMeanSquare(Composite):
    """1 / sqrt(mean(x * x) + eps) over axes, which stay with size 1."""

    name = "inverse_root_mean_square"
    batching = "axes"
    axes: tuple
    eps: float
    takes = "F[*s]"

    def infer(self, x: Type) -> Type:
        return Type(wide_dtype(x.dtype), tuple(1 if i in self.axes else d for i, d in enumerate(x.shape)))

    def expand(self, x):
        wide = cast(x, wide_dtype(x.dtype))
        return _scale(_mean(wide * wide, self.axes), self.eps)

    def grad(self, g, x, *, out):
        return cast(_share(-g * out * out * out, x, self.axes) * cast(x, out.dtype), x.dtype)


def standardize(x: Value, axes, eps: float) -> tuple[Value, Value, Value]:
    """(x - mean) / sqrt(variance + eps), mean and variance over axes."""
    return _normalize(x, axes, tuple(a for a in range(x.ndim) if a not in axes), None, None, eps)


def _normalize(x: Value, axes, shared, weight: Value | None, bias: Value | None, eps: float) -> tuple:
    """y, mean, variance of Normalize; weight and bias have x's rank."""
    parameters = [v for v in (weight, bias) if v is not None]
    return Normalize(axes, shared, float(eps), weight is not None, bias is not None)(x, *parameters)[:3]


# -- over the last axes


def _trailing_axes(name: str, x: Value, normalized_shape) -> tuple[int, ...]:
    shape = tuple(normalized_shape) if isinstance(normalized_shape, (tuple, list)) else (normalized_shape,)
    first = x.ndim - len(shape)
    if not shape or first < 0 or any(a != b for a, b in zip(x.shape[first:], shape, strict=True)):
        raise ShapeError(
            name, f"normalized_shape is {show_shape(shape)}; x, of shape {show_shape(x.shape)}, must end in it"
        )
    return tuple(range(first, x.ndim))


def _affine(name: str, y: Value, weight: Value | None, bias: Value | None, shape) -> Value:
    """y * weight + bias, both of the given shape up to axes of size 1."""
    dtype = y.dtype
    for what, v in (("weight", weight), ("bias", bias)):
        _check_affine(name, what, y, v, shape)
    if weight is not None:
        y = cast(y * weight, dtype)
    return y if bias is None else cast(y + bias, dtype)


def _check_dtype(name: str, what: str, x: Value, v: Value | None):
    """Weights are of x's dtype; for the 16-bit ones they may be float32."""
    if v is None or v.dtype is x.dtype:
        return
    if x.dtype in (dtypes.float16, dtypes.bfloat16) and v.dtype is dtypes.float32:
        return
    if tracing.autocast_dtype is not None and x.dtype is not dtypes.float64 and v.dtype is not dtypes.float64:
        return
    raise DTypeError(
        name,
        f"the input is {x.dtype} and {what} is {v.dtype}; they must have the same dtype",
        fix=f"convert the input, x.to(td.{v.dtype}), or the layer, layer.to(td.{x.dtype})",
    )


def _check_affine(name: str, what: str, x: Value, v: Value | None, shape):
    _check_dtype(name, what, x, v)
    if v is not None and (v.ndim != len(shape) or any(a != b for a, b in zip(v.shape, shape, strict=True))):
        raise ShapeError(name, f"{what} is {show_shape(v.shape)} and must be {show_shape(shape)}")


@op(method=False)
def layer_norm(x: Tensor, normalized_shape: Ints, weight: Tensor | None = None, bias: Tensor | None = None, eps=1e-5):
    """x with mean 0 and variance 1 over its last axes, then times weight plus bias.

    x: (*s, *normalized_shape); weight, bias: normalized_shape -> shape and dtype of x

    >>> td.layer_norm(td.tensor([[1.0, 2.0, 3.0]]), 3)
    tensor([[-1.2247,  0.0000,  1.2247]])
    """
    x = to_float(x)
    axes = _trailing_axes("layer_norm", x, normalized_shape)
    shape = tuple(x.shape[a] for a in axes)
    for what, v in (("weight", weight), ("bias", bias)):
        _check_affine("layer_norm", what, x, v, shape)
    leading = tuple(range(x.ndim - len(axes)))
    spread = lambda v: v if v is None or not leading else F.Reshape((1,) * len(leading) + shape)(v)
    return _normalize(x, axes, leading, spread(weight), spread(bias), eps)[0]


@op(method=False)
def rms_norm(x: Tensor, normalized_shape: Ints, weight: Tensor | None = None, eps=None):
    """x over the root of its mean square along its last axes, then times weight. eps: the dtype's own if None.

    x: (*s, *normalized_shape); weight: normalized_shape -> shape and dtype of x

    >>> td.rms_norm(td.tensor([[3.0, 4.0]]), 2)
    tensor([[0.8485, 1.1314]])
    """
    x = to_float(x)
    axes = _trailing_axes("rms_norm", x, normalized_shape)
    if eps is None:
        eps = _EPSILON[dtypes.part_dtype(x.dtype).name]
    wide = widen(x)
    y = wide * full_expand(InverseRootMeanSquare(axes, float(eps))(wide), x.shape)
    _check_affine("rms_norm", "weight", x, weight, tuple(x.shape[a] for a in axes))
    return cast(y if weight is None else y * weight, x.dtype)


_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


# -- over a batch


def _check_per_channel(name: str, what: str, x: Value, v: Value | None, channels):
    _check_dtype(name, what, x, v)
    if v is not None and (v.ndim != 1 or v.shape[0] != channels):
        raise ShapeError(
            name, f"{what} is {show_shape(v.shape)} and must have one element for each of the {show(channels)} channels"
        )


def _channel_affine(name: str, y: Value, weight: Value | None, bias: Value | None) -> Value:
    _check_per_channel(name, "weight", y, weight, y.shape[1])
    _check_per_channel(name, "bias", y, bias, y.shape[1])
    dtype = y.dtype
    if weight is not None:
        y = cast(y * _per_channel(weight, y.ndim), dtype)
    return y if bias is None else cast(y + _per_channel(bias, y.ndim), dtype)


def _per_channel(v: Value, ndim: int) -> Value:
    return F.Reshape((1, v.shape[0]) + (1,) * (ndim - 2))(v)


def _check_channels(name: str, x: Value):
    if x.ndim < 2:
        raise ShapeError(name, f"x is {show_shape(x.shape)}; it must be (N, C) or (N, C, *s)")


@op(name="batch_norm", hidden=True)
def _standardize_batch(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps):
    """Batch normalisation by the batch's own statistics; also their mean and unbiased variance, without gradient.

    x: (N, C, *s) -> (N, C, *s), (C), (C)
    """
    _check_channels("batch_norm", x)
    x = to_float(x)
    axes = tuple(i for i in range(x.ndim) if i != 1)
    count = product(x.shape[a] for a in axes)
    if count < 2:
        raise ShapeError(
            "batch_norm",
            f"one value per channel has no variance: x is {show_shape(x.shape)}",
            fix="train on larger batches",
        )
    for what, v in (("weight", weight), ("bias", bias)):
        _check_per_channel("batch_norm", what, x, v, x.shape[1])
    spread = lambda v: None if v is None else _per_channel(v, x.ndim)
    y, mean, variance = _normalize(x, axes, axes, spread(weight), spread(bias), eps)
    unbiased = variance * (constant(count, variance.dtype) / constant(count - 1, variance.dtype))
    shape = (x.shape[1],)
    return (
        y,
        F.stop_gradient(F.Reshape(shape)(mean)),
        F.stop_gradient(F.Reshape(shape)(unbiased)),
    )


@op(name="batch_norm", hidden=True)
def _scale_batch(x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None, eps):
    """Batch normalisation by given statistics.

    x: (N, C, *s); mean, variance: (C) -> (N, C, *s)
    """
    _check_channels("batch_norm", x)
    x = to_float(x)
    for what, v in (("running_mean", mean), ("running_var", variance)):
        _check_per_channel("batch_norm", what, x, v, x.shape[1])
    scale = F.Reshape((1, x.shape[1]) + (1,) * (x.ndim - 2))(
        constant(1, variance.dtype) / F.sqrt(variance + constant(eps, variance.dtype))
    )
    y = cast((x - _per_channel(mean, x.ndim)) * scale, x.dtype)
    return _channel_affine("batch_norm", y, weight, bias)


@op(hidden=True, mutates=("running_mean", "running_var"))
def _follow(running_mean: Tensor, running_var: Tensor, mean: Tensor, variance: Tensor, momentum: Tensor):
    """Running statistics a step nearer to a batch's."""
    return F.lerp(running_mean, mean, momentum), F.lerp(running_var, variance, momentum)


@op(name="batch_norm", hidden=True, mutates=("running_mean", "running_var", "batches"))
def _train_batch(
    running_mean: Tensor, running_var: Tensor, batches: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None,
    momentum: Tensor, eps,
):  # fmt: skip
    """All of a training step's batch normalisation: what follows the statistics is computed where they are."""
    y, mean, variance = _standardize_batch(x, weight, bias, eps)
    mean, variance = F.lerp(running_mean, mean, momentum), F.lerp(running_var, variance, momentum)
    return mean, variance, batches + 1, y


def _update(running_mean, running_var, mean, variance, momentum: float):
    if running_mean is not None and running_var is not None:
        _follow(running_mean, running_var, mean, variance, momentum)
    elif running_mean is not None:
        F.lerp_(running_mean, mean, momentum)
    elif running_var is not None:
        F.lerp_(running_var, variance, momentum)


def batch_norm_counted(x, running_mean, running_var, batches, weight, bias, momentum: float, eps: float):
    """batch_norm while training, which also counts the batch."""
    if isinstance(x, _runtime.Tensor) and _runtime.device_index(x) > 0 and not _runtime.capturing():
        return _train_batch(running_mean, running_var, batches, x, weight, bias, momentum, eps)[3]
    batches.add_(1)
    y, mean, variance = _standardize_batch(x, weight, bias, eps)
    _update(running_mean, running_var, mean, variance, momentum)
    return y


@public
def batch_norm(
    x,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
):
    """x with mean 0 and variance 1 in each channel, then times weight plus bias.

    While training the batch's own statistics count, and running_mean and running_var follow them in place; else those are used.

    x: (N, C) or (N, C, *s); the others: (C) -> shape and dtype of x

    >>> td.batch_norm(td.tensor([[1.0], [3.0]]), training=True, eps=0.0)
    tensor([[-1.],
            [ 1.]])
    """
    if not training:
        if running_mean is None or running_var is None:
            raise ValueRangeError(
                "batch_norm", "running_mean and running_var are needed when not training", fix="pass training=True"
            )
        return _scale_batch(x, running_mean, running_var, weight, bias, eps)
    y, mean, variance = _standardize_batch(x, weight, bias, eps)
    _update(running_mean, running_var, mean, variance, momentum)
    return y


@op(method=False)
def group_norm(x: Tensor, num_groups, weight: Tensor | None = None, bias: Tensor | None = None, eps=1e-5):
    """x with mean 0 and variance 1 in each group of channels of each sample, then times weight plus bias.

    x: (N, C, *s) with C divisible by num_groups; weight, bias: (C) -> shape and dtype of x

    >>> td.group_norm(td.tensor([[1.0, 3.0, 2.0, 4.0]]), 2, eps=0.0)
    tensor([[-1.,  1., -1.,  1.]])
    """
    _check_channels("group_norm", x)
    x = to_float(x)
    channels = x.shape[1]
    if num_groups < 1 or channels % num_groups != 0:
        raise ShapeError("group_norm", f"{show(channels)} channels do not split into {num_groups} groups")
    grouped = F.Reshape((x.shape[0], num_groups, channels // num_groups, *x.shape[2:]))(x)
    y = standardize(grouped, tuple(range(2, grouped.ndim)), eps)[0]
    for what, v in (("weight", weight), ("bias", bias)):
        _check_per_channel("group_norm", what, x, v, channels)
        if v is not None:  # in the grouped shape, so that all is one kernel
            v = F.Reshape((1, num_groups, channels // num_groups) + (1,) * (x.ndim - 2))(v)
            y = cast(y * v if what == "weight" else y + v, x.dtype)
    return F.Reshape(x.shape)(y)


@op(name="instance_norm", hidden=True)
def _standardize_instance(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps):
    """Instance normalisation by the instances' own statistics; also their mean and unbiased variance over the batch.

    x: (N, C, *s) -> (N, C, *s), (C), (C)
    """
    if x.ndim < 3:
        raise ShapeError("instance_norm", f"x is {show_shape(x.shape)}; it must be (N, C, *s)")
    x = to_float(x)
    axes = tuple(range(2, x.ndim))
    count = product(x.shape[a] for a in axes)
    if count < 2:
        raise ShapeError("instance_norm", f"one value per channel has no variance: x is {show_shape(x.shape)}")
    y, mean, variance = standardize(x, axes, eps)
    unbiased = variance * (constant(count, variance.dtype) / constant(count - 1, variance.dtype))
    averages = [F.stop_gradient(F.mean(F.Reshape((x.shape[0], x.shape[1]))(v), 0)) for v in (mean, unbiased)]
    return (_channel_affine("instance_norm", y, weight, bias), *averages)


@public
def instance_norm(
    x,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
):
    """x with mean 0 and variance 1 in each channel of each sample, then times weight plus bias.

    x: (N, C, *s); the others: (C) -> shape and dtype of x

    >>> td.instance_norm(td.tensor([[[1.0, 3.0]]]), eps=0.0)
    tensor([[[-1.,  1.]]])
    """
    if not use_input_stats:
        return F.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    y, mean, variance = _standardize_instance(x, weight, bias, eps)
    _update(running_mean, running_var, mean, variance, momentum)
    return y


@op
@in_float32
def normalize(x: Tensor, p=2.0, axis=1, eps=1e-12):
    """x over its p-norm along an axis, or along several together, which counts as eps where it is smaller.

    >>> td.normalize(td.tensor([3.0, 4.0]), axis=0)
    tensor([0.6000, 0.8000])
    """
    x = to_float(x)
    axis = (normalize_axes if isinstance(axis, (tuple, list)) else normalize_axis)("normalize", axis, x.ndim)
    return x / F.clip(F.vector_norm(x, p, axis, keepdims=True), eps)
