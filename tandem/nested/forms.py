"""What operators do with nested tensors (Note [Nested tensors] in tensor.py). Every other one says so (tandem/tensors/parts.py)."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime
from tandem.errors import ShapeError, UnsupportedError
from tandem.nested.tensor import NestedTensor, owners_of
from tandem.ops import loss
from tandem.ops.define import Elementwise
from tandem.ops.prepare import normalize_axis
from tandem.ops.ragged_attention import ragged_attention
from tandem.tensors.parts import form_table

Tensor = _runtime.Tensor
FORMS, form = form_table()


def _is_nested(x) -> bool:
    return isinstance(x, NestedTensor)


def _first(values) -> NestedTensor:
    return next(v for v in values if _is_nested(v))


def _same_lengths(name: str, x: NestedTensor, y: NestedTensor):
    if x._offsets_part is y._offsets_part:
        return
    if x._ragged != y._ragged or x.shape[0] != y.shape[0] or x._values_part.shape[0] != y._values_part.shape[0]:
        raise ShapeError(
            name, f"nested tensors of lengths {x.lengths().tolist()} and {y.lengths().tolist()} do not go together"
        )
    if not _runtime.capturing() and x._offsets_part.tolist() != y._offsets_part.tolist():
        raise ShapeError(
            name, f"nested tensors of lengths {x.lengths().tolist()} and {y.lengths().tolist()} do not go together"
        )


def _rows(name: str, like: NestedTensor, x):
    """x as it meets the rows of `like`: its own rows, or a dense tensor that broadcasts along the ragged axis."""
    if _is_nested(x):
        _same_lengths(name, like, x)
        return x._values_part
    if not isinstance(x, Tensor) or x.ndim == 0:
        return x
    r = like._ragged
    axes = x.ndim - like.ndim + r  # where the ragged axis of `like` is in x
    if axes >= 0 and x.shape[axes] != 1:
        raise ShapeError(
            name,
            f"a dense tensor of shape {tuple(x.shape)} meets a nested one of shape {tuple(like.shape)}; along the ragged axis it "
            "must have size 1",
            fix="make it nested: td.nested.nested_tensor([...])",
        )
    if x.ndim < like.ndim or x.shape[0] == 1:  # the same for every tensor of the batch
        x = F.reshape(x, x.shape[1:]) if x.ndim == like.ndim else x
        at = x.ndim - (like.ndim - 1) + (r - 1)
        if at < 0:
            return x
        rest = list(x.shape)
        del rest[at]
        return F.reshape(x, (1,) * (like._values_part.ndim - len(rest)) + tuple(rest))
    rest = [n for i, n in enumerate(x.shape) if i != r]
    return F.index_select(F.reshape(x, rest), 0, owners_of(like))


def _elementwise(function):
    def apply(*arguments):
        like = _first(arguments)
        return like.with_values(_call(function, [_rows(function.__name__, like, a) for a in arguments]))

    return apply


def _call(function, arguments):
    """With arguments in the order of its parameters."""
    if not hasattr(function, "parameters"):  # a Python function around an operator function of its name
        return function(*arguments)
    pairs = list(zip(function.parameters, arguments, strict=False))
    return function(*(a for p, a in pairs if not p.keyword_only), **{p.name: a for p, a in pairs if p.keyword_only})


def _elementwise_names(kind: type = Elementwise):
    for one in kind.__subclasses__():
        yield one.name
        yield from _elementwise_names(one)


# Functions named as elementwise operators, and others that are made of these.
for _name in (
    *_elementwise_names(),
    "absolute", "negative", "sqrt", "rsqrt", "square", "sigmoid", "relu", "gelu", "silu", "elu", "leaky_relu", "softplus",
    "sign", "floor", "ceil", "round", "reciprocal", "logical_not", "isnan", "isinf", "isfinite", "multiply", "maximum",
    "minimum", "power", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "where", "clip", "clone",
    "converted", "stop_gradient", "relu6", "mish", "hardtanh", "logical_and", "logical_or", "logical_xor", "zeros_like",
    "ones_like", "masked_fill", "selu", "celu", "hardswish", "hardsigmoid", "softsign", "tanhshrink", "lerp", "logsigmoid",
):  # fmt: skip
    if callable(_function := getattr(F, _name, None)):
        FORMS[_function.__name__] = _elementwise(_function)


@form("add")
def _add(x, y, alpha=None):
    like = _first((x, y))
    rows = _rows("add", like, x), _rows("add", like, y)
    return like.with_values(F.add(*rows) if alpha is None else F.add(*rows, alpha=alpha))


@form("subtract")
def _subtract(x, y, alpha=None):
    like = _first((x, y))
    rows = _rows("subtract", like, x), _rows("subtract", like, y)
    return like.with_values(F.subtract(*rows) if alpha is None else F.subtract(*rows, alpha=alpha))


@form("true_divide")
def _divide(x, y, rounding_mode=None):
    like = _first((x, y))
    return like.with_values(
        F.true_divide(_rows("divide", like, x), _rows("divide", like, y), rounding_mode=rounding_mode)
    )


@form("astype")
def _astype(x, dtype, copy=True, device=None):
    return x.with_values(F.astype(x._values_part, dtype, copy=copy))


@form("dropout")
def _dropout(x, p=0.5, training=True, *rest):
    return x.with_values(F.dropout(x._values_part, p, training))


# -- layers that treat rows alike


@form("linear")
def _linear(x, weight, bias=None):
    if not _is_nested(x) or x._ragged == x.ndim - 1:
        return NotImplemented
    return x.with_values(F.linear(x._values_part, weight, bias))


@form("matmul")
def _matmul(x, y):
    if not _is_nested(x) or _is_nested(y) or y.ndim != 2 or x._ragged == x.ndim - 1:
        return NotImplemented
    return x.with_values(F.matmul(x._values_part, y))


@form("embedding")
def _embedding(x, weight, padding_idx=None):
    if _is_nested(weight):
        return NotImplemented
    return x.with_values(F.embedding(x._values_part, weight, padding_idx))


@form("layer_norm")
def _layer_norm(x, normalized_shape, *rest):
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if x._ragged >= x.ndim - len(shape):
        return NotImplemented
    return x.with_values(F.layer_norm(x._values_part, shape, *rest))


@form("rms_norm")
def _rms_norm(x, normalized_shape, *rest):
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if x._ragged >= x.ndim - len(shape):
        return NotImplemented
    return x.with_values(F.rms_norm(x._values_part, shape, *rest))


def _inner(name: str, x: NestedTensor, axis: int) -> int | None:
    """The axis of the rows that an axis of the whole is; None for the ragged one and that of the batch."""
    axis = normalize_axis(name, axis, x.ndim)
    if axis in (0, x._ragged):
        return None
    return axis if axis < x._ragged else axis - 1


@form("softmax")
def _softmax(x, axis=-1, *rest):
    inner = _inner("softmax", x, axis)
    if inner is not None:
        return x.with_values(F.softmax(x._values_part, inner, *rest))
    if normalize_axis("softmax", axis, x.ndim) != x._ragged:
        return NotImplemented
    return x.with_values(F.segment_softmax(x._values_part, owners_of(x), x.shape[0]))


@form("log_softmax")
def _log_softmax(x, axis=-1, *rest):
    inner = _inner("log_softmax", x, axis)
    return NotImplemented if inner is None else x.with_values(F.log_softmax(x._values_part, inner, *rest))


# -- axes


@form("transpose")
def _transpose(x, axis0, axis1):
    a, b = normalize_axis("transpose", axis0, x.ndim), normalize_axis("transpose", axis1, x.ndim)
    if a == b:
        return x
    if 0 in (a, b):
        return NotImplemented
    order = list(range(x.ndim))
    order[a], order[b] = order[b], order[a]
    ragged = order.index(x._ragged)
    rest = [n for n in order[1:] if n != x._ragged]  # axes of rows, by their old names
    place = {n: i + 1 for i, n in enumerate(n for n in range(1, x.ndim) if n != x._ragged)}
    return x.with_values(F.permute(x._values_part, (0, *(place[n] for n in rest))), ragged)


@form("unflatten")
def _unflatten(x, axis, sizes):
    inner = _inner("unflatten", x, axis)
    if inner is None:
        return NotImplemented
    ragged = x._ragged + (len(sizes) - 1 if normalize_axis("unflatten", axis, x.ndim) < x._ragged else 0)
    return x.with_values(F.unflatten(x._values_part, inner, sizes), ragged)


@form("flatten")
def _flatten(x, start_axis=0, end_axis=-1):
    a, b = normalize_axis("flatten", start_axis, x.ndim), normalize_axis("flatten", end_axis, x.ndim)
    if a <= x._ragged:
        return NotImplemented
    return x.with_values(F.flatten(x._values_part, a - 1, b - 1))


@form("concat", "cat", "concatenate")
def _concat(tensors, axis=0):
    like = _first(tensors)
    inner = _inner("concat", like, axis)
    if inner is None or not all(map(_is_nested, tensors)):
        return NotImplemented
    return like.with_values(F.concat([_rows("concat", like, t) for t in tensors], inner))


@form("split_sizes")
def _split_sizes(x, sizes, axis=0):
    inner = _inner("split", x, axis)
    if inner is None:
        return NotImplemented
    return tuple(map(x.with_values, F.split_sizes(x._values_part, sizes, inner)))


# -- reductions: what is left is dense where the ragged axis goes


@form("sum")
def _sum(x, axis=None, keepdims=False, *rest):
    return _reduced("sum", x, axis, keepdims)


@form("mean")
def _mean(x, axis=None, keepdims=False, *rest):
    return _reduced("mean", x, axis, keepdims)


def _reduced(name: str, x: NestedTensor, axis, keepdims):
    function = getattr(F, name)
    if axis is None:
        return function(x._values_part)
    if not isinstance(axis, int):
        if len(axis) != 1:
            return NotImplemented
        axis = axis[0]
    inner = _inner(name, x, axis)
    if inner is not None:
        if not keepdims:
            ragged = x._ragged - (normalize_axis(name, axis, x.ndim) < x._ragged)
            return x.with_values(function(x._values_part, inner), ragged)
        return x.with_values(function(x._values_part, inner, True))
    if normalize_axis(name, axis, x.ndim) != x._ragged:
        return NotImplemented
    made = getattr(F, f"segment_{name}")(x._values_part, owners_of(x), x.shape[0])
    return F.unsqueeze(made, x._ragged) if keepdims else made


@form("amax", "max")
def _amax(x, axis=None, keepdims=False, *rest):
    if axis is None:
        return F.amax(x._values_part)
    if axis not in (x._ragged, x._ragged - x.ndim):
        return NotImplemented
    made = F.segment_max(x._values_part, owners_of(x), x.shape[0])
    return F.unsqueeze(made, x._ragged) if keepdims else made


# -- attention and losses


@form("scaled_dot_product_attention")
def _attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False, generator=None
):
    operands = query, key, value
    if not all(map(_is_nested, operands)) or attn_mask is not None or dropout_p:
        raise UnsupportedError(
            "scaled_dot_product_attention", "of nested tensors all three must be nested, without attn_mask and dropout",
            fix="use is_causal, or x.to_padded_tensor(0.0) with a mask",
        )  # fmt: skip
    if any(t.ndim != 4 or t._ragged != 2 for t in operands):
        shapes = ", ".join(str(tuple(t.shape)) for t in operands)
        raise ShapeError(
            "scaled_dot_product_attention", f"nested operands are {shapes}; they must be (B, H, ragged, D)",
            fix="x.unflatten(-1, (heads, -1)).transpose(1, 2)",
        )  # fmt: skip
    _same_lengths("scaled_dot_product_attention", key, value)
    rows = [t._values_part for t in operands]
    if enable_gqa and rows[1].shape[1] != rows[0].shape[1]:
        times = rows[0].shape[1] // rows[1].shape[1]
        rows[1:] = [F.repeat_interleave(r, times, 1) for r in rows[1:]]
    return query.with_values(ragged_attention(*rows, query._offsets_part, key._offsets_part, bool(is_causal), scale))


def _loss(function):
    name = function.__name__

    def apply(input, target, *settings):
        if not _is_nested(input) or input._ragged != 1:
            return NotImplemented
        made = _call(function, [input._values_part, _rows(name, input, target), *settings])
        return input.with_values(made) if made.ndim and made.shape[0] == input._values_part.shape[0] else made

    FORMS[name] = apply


for _function in (
    F.cross_entropy, F.nll_loss, F.binary_cross_entropy, F.binary_cross_entropy_with_logits, F.kl_div, loss._mse_loss,
    loss._l1_loss, loss._smooth_l1_loss, loss._huber_loss,
):  # fmt: skip
    _loss(_function)


NestedTensor.forms = FORMS
