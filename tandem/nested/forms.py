"""What operators do with nested tensors (Note [Nested tensors] in tensor.py). Every other one says so (tandem/tensors/parts.py)."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime
from tandem.errors import ShapeError, UnsupportedError
from tandem.nested.tensor import NestedTensor, make, owners_of
from tandem.ops import loss
from tandem.ops.define import Elementwise, op
from tandem.ops.index import known
from tandem.ops.prepare import normalize_axis
from tandem.ops.ragged_attention import ragged_attention
from tandem.tensors.parts import form_table

Tensor = _runtime.Tensor
FORMS, form = form_table()


def _is_nested(x) -> bool:
    return isinstance(x, NestedTensor)


def _first(values) -> NestedTensor:
    return next(v for v in values if _is_nested(v))


@op(name="lengths", hidden=True)
def _check_lengths(x: Tensor, y: Tensor):
    """x, y: (B + 1), offsets that must be equal -> x"""
    return known(x, F.not_equal(x, y), 4)


def _same_lengths(name: str, x: NestedTensor, y: NestedTensor):
    if x._offsets_part is y._offsets_part:
        return
    same = x._ragged == y._ragged and x.shape[0] == y.shape[0] and x._values_part.shape[0] == y._values_part.shape[0]
    if same and _runtime.capturing():
        _check_lengths(x._offsets_part, y._offsets_part)  # when the program runs
    elif not same or x._offsets_part.tolist() != y._offsets_part.tolist():
        raise ShapeError(
            name, f"nested tensors of lengths {x.lengths().tolist()} and {y.lengths().tolist()} do not go together"
        )


def _rows(name: str, like: NestedTensor, x, ranks: bool = True):
    """x as it meets the rows of `like`: its own rows, or a dense tensor that broadcasts along the ragged axis. ranks: a nested x
    has as many axes as `like`, as ragged axes are not broadcast."""
    if _is_nested(x):
        _same_lengths(name, like, x)
        if ranks and x.ndim != like.ndim:
            raise ShapeError(
                name, f"nested tensors of {like.ndim} and {x.ndim} axes do not go together; they must have the same number",
                fix="give the rows of one an axis of size 1: x.unsqueeze(-1)",
            )  # fmt: skip
        return x._values_part
    if not isinstance(x, Tensor) or x.ndim == 0:
        return x
    r = like._ragged
    axes = x.ndim - like.ndim + r  # where the ragged axis of `like` is in x
    if x.ndim > like.ndim or (x.ndim == like.ndim and x.shape[0] not in (1, like.shape[0])):
        raise ShapeError(
            name,
            f"a dense tensor of shape {tuple(x.shape)} meets a nested one of shape {tuple(like.shape)}; they do not broadcast",
        )
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
def _dropout(x, p=0.5, training=True, generator=None):
    return x.with_values(F.dropout(x._values_part, p, training, generator=generator))


def _in_place(function):
    def apply(x, *arguments):
        if not _is_nested(x):
            return NotImplemented
        _call(function, [x._values_part, *(_rows(function.__name__, x, a) for a in arguments)])
        return x

    return apply


for _name in [n for n in dir(F) if n.endswith("_") and (n[:-1] in FORMS or n in ("zero_", "fill_", "copy_"))]:
    if hasattr(_function := getattr(F, _name), "parameters"):
        FORMS[_name] = _in_place(_function)


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


# -- axes


def _inner(name: str, x: NestedTensor, axis: int) -> int | None:
    """The axis of the rows that an axis of the whole is; None for the ragged one and that of the batch."""
    axis = normalize_axis(name, axis, x.ndim)
    if axis in (0, x._ragged):
        return None
    return axis if axis < x._ragged else axis - 1


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
    if not all(_is_nested(t) and t.ndim == like.ndim for t in tensors):
        return NotImplemented
    if inner is not None:
        return like.with_values(F.concat([_rows("concat", like, t) for t in tensors], inner))
    if normalize_axis("concat", axis, like.ndim) != 0 or any(t._ragged != like._ragged for t in tensors):
        return NotImplemented
    offsets, before = [like._offsets_part[:1]], 0
    for t in tensors:
        offsets.append(t._offsets_part[1:] + before)
        before += t._values_part.shape[0]
    values = F.concat([t._values_part for t in tensors], 0)
    return make(values, F.concat(offsets, 0), max(t._longest for t in tensors), like._ragged)


@form("unsqueeze")
def _unsqueeze(x, axis):
    axis = axis % (x.ndim + 1) if -x.ndim - 1 <= axis <= x.ndim else x.ndim + 1
    if not 0 < axis <= x.ndim:
        return NotImplemented
    before = axis <= x._ragged
    return x.with_values(F.unsqueeze(x._values_part, axis if before else axis - 1), x._ragged + before)


@form("squeeze")
def _squeeze(x, axis=None):
    inner = _inner("squeeze", x, axis) if isinstance(axis, int) else None
    if inner is None:
        return NotImplemented
    if x._values_part.shape[inner] != 1:
        return x
    return x.with_values(F.squeeze(x._values_part, inner), x._ragged - (axis % x.ndim < x._ragged))


@form("split_sizes")
def _split_sizes(x, sizes, axis=0):
    inner = _inner("split", x, axis)
    if inner is None:
        return NotImplemented
    return tuple(map(x.with_values, F.split_sizes(x._values_part, sizes, inner)))


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
    of_classes = function in (F.cross_entropy, F.nll_loss)  # weights are of classes, targets may be numbers of them

    def apply(input, target, *settings):
        if not _is_nested(input) or input._ragged != 1:
            return NotImplemented
        if of_classes and not _is_nested(target):
            raise ShapeError(
                name, f"input is a nested tensor of shape {tuple(input.shape)} and target a dense one of shape "
                f"{tuple(target.shape)}; there must be a target for every row", fix="td.nested.nested_tensor([...])",
            )  # fmt: skip
        rows = _rows(name, input, target, ranks=not of_classes)
        if not of_classes:
            settings = [_rows(name, input, s) for s in settings]
        per_tensor = "batchmean" in settings
        made = _call(function, [input._values_part, rows, *("sum" if s == "batchmean" else s for s in settings)])
        if per_tensor:
            return made / input.shape[0]
        return input.with_values(made) if made.ndim and made.shape[0] == input._values_part.shape[0] else made

    FORMS[name] = apply


for _function in (
    F.cross_entropy, F.nll_loss, F.binary_cross_entropy, F.binary_cross_entropy_with_logits, F.kl_div, loss._mse_loss,
    loss._l1_loss, loss._smooth_l1_loss, loss._huber_loss,
):  # fmt: skip
    _loss(_function)


NestedTensor.forms = FORMS
