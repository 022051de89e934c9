"""How primitives are written."""

from __future__ import annotations

import math

import numpy as np

from tandem import dtypes
from tandem.export.stablehlo.writer import Writer, expression, is_dynamic, tensor, type_of, writes
from tandem.graph.ir import Type
from tandem.graph.symbolic import Sym

# -- elementwise

_SAME = {
    "neg": "negate", "exp": "exponential", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt", "sin": "sine", "cos": "cosine",
    "tanh": "tanh", "sigmoid": "logistic", "floor": "floor", "ceil": "ceil", "round": "round_nearest_even", "abs": "abs",
    "expm1": "exponential_minus_one", "log1p": "log_plus_one", "add": "add", "sub": "subtract", "mul": "multiply",
    "div": "divide", "maximum": "maximum", "minimum": "minimum", "bit_and": "and", "bit_or": "or", "bit_xor": "xor",
    "bit_not": "not", "logical_not": "not", "atan2": "atan2", "cbrt": "cbrt",
}  # fmt: skip
_OF_FLOATS = frozenset(("floor", "ceil", "round_nearest_even", "abs"))  # of other numbers these are something else
_OF_BOOLEANS = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}


def _elementwise(name: str):
    def write(w: Writer, node, *xs):
        out = node.outputs[0]
        if name in _OF_FLOATS and not out.dtype.is_inexact and (name != "abs" or out.dtype.kind != "int"):
            return expression(w, node, xs)
        spread = [w.broadcast(x, v.dtype, v.shape, out.shape, []) for x, v in zip(xs, node.inputs, strict=True)]
        op = _OF_BOOLEANS.get(name, name) if out.dtype is dtypes.bool_ else name
        return w.op(op, spread, out.dtype, out.shape)

    return write


for _name, _op in _SAME.items():
    writes(_name)(_elementwise(_op))


@writes("copy", "stop_gradient", "no_derivative", "contiguous")
def same(w, node, x):
    return x


@writes("cast")
def cast(w, node, x):
    given, out = node.inputs[0], node.outputs[0]
    if out.dtype is dtypes.bool_:
        zero = w.full(0, given.dtype, given.shape)
        return w.compare("NE", x, zero, given.dtype, given.shape)
    return w.convert(x, given.dtype, out.dtype, out.shape)


def _comparison(how: str):
    def write(w, node, a, b):
        shape = node.outputs[0].shape
        a, b = (w.broadcast(x, v.dtype, v.shape, shape, []) for x, v in zip((a, b), node.inputs, strict=True))
        return w.compare(how, a, b, node.inputs[0].dtype, shape)

    return write


for _name, _how in {"equal": "EQ", "not_equal": "NE", "less": "LT", "less_equal": "LE"}.items():
    writes(_name)(_comparison(_how))


@writes("where")
def where(w, node, *xs):
    out = node.outputs[0]
    c, a, b = (w.broadcast(x, v.dtype, v.shape, out.shape, []) for x, v in zip(xs, node.inputs, strict=True))
    return w.select(c, a, b, out.dtype, out.shape)


@writes("relu")
def relu(w, node, x):
    out = node.outputs[0]
    return w.op("maximum", [x, w.full(0, out.dtype, out.shape)], out.dtype, out.shape)


# -- constants


@writes("constant")
def constant(w, node):
    return w.scalar(node.op.value, node.op.dtype)


@writes("size")
def size(w, node):
    return w.convert(w.size(node.op.value), dtypes.int32, node.op.dtype, ())


@writes("iota")
def iota(w, node):
    out = node.outputs[0]
    return w.iota(out.shape, node.op.axis, out.dtype)


# -- movement


def _typed(w, text: str, node) -> str:
    return w.emit(f"{text} : ({type_of(node.inputs[0].type)}) -> {type_of(node.outputs[0].type)}")


@writes("reshape")
def reshape(w, node, x):
    return w.reshape(x, node.inputs[0].dtype, node.inputs[0].shape, node.outputs[0].shape)


@writes("permute")
def permute(w, node, x):
    return _typed(w, f"stablehlo.transpose {x}, dims = {list(node.op.axes)}", node)


@writes("expand")
def expand(w, node, x):
    given, out = node.inputs[0], node.outputs[0]
    return w.broadcast(x, given.dtype, given.shape, out.shape)


@writes("slice")
def slice_(w, node, x):
    op, given, out = node.op, node.inputs[0], node.outputs[0]
    flipped = [a for a, step in enumerate(op.steps) if not isinstance(step, Sym) and step < 0]
    starts, steps = list(op.starts), list(op.steps)
    if is_dynamic((*given.shape, *starts, *steps, *op.sizes)):
        x = w.reverse(x, given.type, flipped)
        for a in flipped:
            starts[a], steps[a] = given.shape[a] - 1 - starts[a], -steps[a]
        return w.cut(x, given.type, starts, op.sizes, steps)
    parts = []
    for start, step, count in zip(starts, steps, op.sizes, strict=True):
        if step < 0:
            start, step = start + (count - 1) * step if count else 0, -step
        end = start + (count - 1) * step + 1 if count else start
        parts.append(f"{start}:{end}:{step}")
    cut = w.emit(f"stablehlo.slice {x} [{', '.join(parts)}] : ({type_of(given.type)}) -> {type_of(out.type)}")
    return w.reverse(cut, out.type, flipped)


@writes("embed")
def embed(w, node, x):
    op, given, out = node.op, node.inputs[0], node.outputs[0]
    low, high, inner, flipped = [], [], [], []
    for a, (start, step, n, total) in enumerate(zip(op.starts, op.steps, given.shape, op.shape, strict=True)):
        if step < 0:
            flipped.append(a)
            start, step = start + (n - 1) * step, -step
        reach = 0 if isinstance(n, int) and n == 0 else (n - 1) * step + 1
        low.append(start), inner.append(step - 1), high.append(total - start - reach)
    x = w.reverse(x, given.type, flipped)
    zero = w.scalar(0, out.dtype)
    if is_dynamic((*given.shape, *out.shape, *low, *high, *inner)):
        types = ", ".join([type_of(given.type), tensor(out.dtype), *[f"tensor<{given.ndim}xi32>"] * 3])
        edges = ", ".join(w.shape(dims) for dims in (low, high, inner))
        return w.emit(f"stablehlo.dynamic_pad {x}, {zero}, {edges} : ({types}) -> {type_of(out.type)}")
    types = f"({type_of(given.type)}, {tensor(out.dtype)}) -> {type_of(out.type)}"
    return w.emit(f"stablehlo.pad {x}, {zero}, low = {low}, high = {high}, interior = {inner} : {types}")


@writes("concat")
def concat(w, node, *xs):
    types = ", ".join(type_of(v.type) for v in node.inputs)
    out = type_of(node.outputs[0].type)
    return w.emit(f"stablehlo.concatenate {', '.join(xs)}, dim = {node.op.axis} : ({types}) -> {out}")


@writes("roll")
def roll(w, node, x):
    given = node.inputs[0]
    for axis, shift in zip(node.op.axes, node.op.shifts, strict=True):
        n = given.shape[axis]
        if isinstance(n, Sym) or isinstance(shift, Sym):
            w.refuse(node, "along an axis whose size is free it")
        shift %= max(n, 1)
        names, types = [], []
        for begin, count in ((n - shift, shift), (0, n - shift)):
            shape = [count if a == axis else m for a, m in enumerate(given.shape)]
            names.append(w.cut(x, given.type, [begin if a == axis else 0 for a in range(given.ndim)], shape))
            types.append(tensor(given.dtype, shape))
        out = type_of(given.type)
        x = w.emit(f"stablehlo.concatenate {', '.join(names)}, dim = {axis} : ({', '.join(types)}) -> {out}")
    return x


@writes("diagonal")
def diagonal(w, node, x):
    """What is not on the diagonal of the last two axes is masked."""
    given, out = node.inputs[0], node.outputs[0]
    rows, columns = (w.iota(given.shape, given.ndim - k) for k in (2, 1))
    on = w.compare("EQ", rows, columns, dtypes.int64, given.shape)
    zero = w.full(0, given.dtype, given.shape)
    kept = w.select(on, x, zero, given.dtype, given.shape)
    if given.dtype is dtypes.bool_:
        return w.reduce(kept, given.type, "or", False, [given.ndim - 1], out.shape)
    return w.reduce(kept, given.type, "add", 0, [given.ndim - 1], out.shape)


# -- indices


def _positions(w, node, indices, first: int):
    """Index tensors as rows of a new last axis."""
    shape = node.inputs[first].shape
    wide = [w.reshape(i, dtypes.int64, shape, (*shape, 1)) for i in indices]
    if len(wide) == 1:
        return wide[0], (*shape, 1)
    made = (*shape, len(wide))
    types = ", ".join(tensor(dtypes.int64, (*shape, 1)) for _ in wide)
    text = f"stablehlo.concatenate {', '.join(wide)}, dim = {len(shape)} : ({types}) -> {tensor(dtypes.int64, made)}"
    return w.emit(text), made


@writes("gather")
def gather(w, node, x, *indices):
    given, out = node.inputs[0], node.outputs[0]
    at, shape = _positions(w, node, indices, 1)
    k, batch = len(indices), len(shape) - 1
    sizes = [1] * k + list(given.shape[k:])
    numbers = (
        f"offset_dims = {list(range(batch, out.ndim))}, collapsed_slice_dims = {list(range(k))}, "
        f"start_index_map = {list(range(k))}, index_vector_dim = {batch}"
    )
    if is_dynamic(sizes):
        types = (
            f"({type_of(given.type)}, {tensor(dtypes.int64, shape)}, tensor<{len(sizes)}xi32>) -> {type_of(out.type)}"
        )
        return w.emit(
            f'"stablehlo.dynamic_gather"({x}, {at}, {w.shape(sizes)}) <{{dimension_numbers = #stablehlo.gather<{numbers}>, '
            f"indices_are_sorted = false}}> : {types}"
        )
    return w.emit(
        f'"stablehlo.gather"({x}, {at}) <{{dimension_numbers = #stablehlo.gather<{numbers}>, indices_are_sorted = false, '
        f"slice_sizes = array<i64: {', '.join(map(str, sizes))}>}}> : ({type_of(given.type)}, {tensor(dtypes.int64, shape)}) -> "
        f"{type_of(out.type)}"
    )


@writes("scatter")
def scatter(w, node, base, updates, *indices):
    given, new, out = node.inputs[0], node.inputs[1], node.outputs[0]
    at, shape = _positions(w, node, indices, 2)
    k, batch = len(indices), len(shape) - 1
    numbers = (
        f"update_window_dims = {list(range(batch, new.ndim))}, inserted_window_dims = {list(range(k))}, "
        f"scatter_dims_to_operand_dims = {list(range(k))}, index_vector_dim = {batch}"
    )
    op = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}.get(node.op.mode)
    one = tensor(given.dtype)
    old, fresh, made = w.fresh(), w.fresh(), w.fresh()
    body = f"stablehlo.return {fresh} : {one}"
    if op is not None:
        body = f"{made} = stablehlo.{op} {old}, {fresh} : {one}\n{w.indent}  stablehlo.return {made} : {one}"
    types = f"({type_of(given.type)}, {tensor(dtypes.int64, shape)}, {type_of(new.type)}) -> {type_of(out.type)}"
    return w.emit(
        f'"stablehlo.scatter"({base}, {at}, {updates}) <{{indices_are_sorted = false, '
        f"scatter_dimension_numbers = #stablehlo.scatter<{numbers}>, unique_indices = false}}> ({{\n"
        f"{w.indent}^bb0({old}: {one}, {fresh}: {one}):\n{w.indent}  {body}\n{w.indent}}}) : {types}"
    )


# -- reductions

_KINDS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}


def initial(kind: str, dtype):
    """What a reduction begins with."""
    if kind in ("any", "all"):
        return kind == "all"
    if kind in ("sum", "prod"):
        return int(kind == "prod")
    if dtype is dtypes.bool_:
        return kind == "min"
    if dtype.is_inexact:
        return -math.inf if kind == "max" else math.inf
    bits = 8 * dtype.itemsize - (dtype.kind == "int")
    low = -(2**bits) if dtype.kind == "int" else 0
    return low if kind == "max" else 2**bits - 1


@writes("reduce")
def reduce(w, node, x):
    op, given, out = node.op, node.inputs[0], node.outputs[0]
    if not op.axes:
        return x
    left = tuple(n for a, n in enumerate(given.shape) if a not in op.axes)
    if op.kind in ("argmax", "argmin"):
        return w.reshape(_position(w, node, x, left), dtypes.int64, left, out.shape)
    wide = (
        dtypes.float32 if out.dtype in (dtypes.float16, dtypes.bfloat16) and op.kind in ("sum", "prod") else out.dtype
    )
    if op.kind in ("any", "all") and given.dtype is not dtypes.bool_:
        zero = w.full(0, given.dtype, given.shape)
        x = w.compare("NE", x, zero, given.dtype, given.shape)
    else:
        x = w.convert(x, given.dtype, wide, given.shape)
    begin = initial(op.kind, wide)
    name = _KINDS[op.kind]
    if wide is dtypes.bool_:
        name = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}.get(name, name)
    made = w.reduce(x, Type(wide, given.shape), name, begin, op.axes, left)
    return w.reshape(w.convert(made, wide, out.dtype, left), out.dtype, left, out.shape)


def _position(w, node, x, left):
    """The first position of the extremum, NaN before all others, in row-major order of the reduced axes."""
    op, given = node.op, node.inputs[0]
    at = None
    for axis in op.axes:
        line = w.iota(given.shape, axis)
        if at is not None:
            size = w.convert(w.size(given.shape[axis]), dtypes.int32, dtypes.int64, ())
            size = w.broadcast(size, dtypes.int64, (), given.shape, [])
            scaled = w.op("multiply", [at, size], dtypes.int64, given.shape)
            line = w.op("add", [scaled, line], dtypes.int64, given.shape)
        at = line
    kind = "max" if op.kind == "argmax" else "min"
    begin, zero = w.scalar(initial(kind, given.dtype), given.dtype), w.scalar(2**62, dtypes.int64)
    one, index = tensor(given.dtype), tensor(dtypes.int64)
    a, i, b, j = (w.fresh() for _ in range(4))
    lines, w.lines, constants, w._constants = w.lines, [], w._constants, {}
    better = w.compare("GT" if kind == "max" else "LT", a, b, given.dtype, ())
    if given.dtype.is_inexact:
        odd = w.compare("NE", a, a, given.dtype, ())
        other = w.compare("NE", b, b, given.dtype, ())
        better = w.op("and", [better, w.op("not", [other], dtypes.bool_, ())], dtypes.bool_, ())
        first = w.op("and", [odd, w.op("not", [other], dtypes.bool_, ())], dtypes.bool_, ())
        better = w.op("or", [better, first], dtypes.bool_, ())
        both = w.op("and", [odd, other], dtypes.bool_, ())
        same = w.op("or", [w.compare("EQ", a, b, given.dtype, ()), both], dtypes.bool_, ())
    else:
        same = w.compare("EQ", a, b, given.dtype, ())
    earlier = w.compare("LT", i, j, dtypes.int64, ())
    take = w.op("or", [better, w.op("and", [same, earlier], dtypes.bool_, ())], dtypes.bool_, ())
    value, where_ = w.select(take, a, b, given.dtype, ()), w.select(take, i, j, dtypes.int64, ())
    w.line(f"stablehlo.return {value}, {where_} : {one}, {index}")
    body, w.lines, w._constants = "\n".join(w.lines), lines, constants
    name = w.fresh()
    types = f"({type_of(given.type)}, {tensor(dtypes.int64, given.shape)}, {one}, {index})"
    w.line(
        f"{name}:2 = stablehlo.reduce({x} init: {begin}), ({at} init: {zero}) across dimensions = {list(op.axes)} : "
        f"{types} -> ({tensor(given.dtype, left)}, {tensor(dtypes.int64, left)})\n{w.indent} reducer({a}: {one}, {b}: {one}) "
        f"({i}: {index}, {j}: {index}) {{\n{body}\n{w.indent}}}"
    )
    return f"{name}#1"


@writes("cumulative")
def cumulative(w, node, x):
    op, given = node.op, node.inputs[0]
    if op.kind not in _KINDS:
        w.refuse(node, f"the running {op.kind}")
    n = given.shape[op.axis]
    if isinstance(n, Sym):
        w.refuse(node, "it needs to know the size of its axis, which is free: it")
    window = [n if a == op.axis else 1 for a in range(given.ndim)]
    pads = [[0, 0] for _ in range(given.ndim)]
    pads[op.axis] = [0, n - 1] if op.reverse else [n - 1, 0]
    return _windows(
        w, x, given, node.outputs[0], _KINDS[op.kind], initial(op.kind, given.dtype), window, None, None, pads
    )


def _windows(w, x, given, out, name: str, begin, window, strides, dilations, pads) -> str:
    start, one = w.scalar(begin, given.dtype), tensor(given.dtype)
    a, b, made = w.fresh(), w.fresh(), w.fresh()
    array = lambda values: f"array<i64: {', '.join(map(str, values))}>"
    attributes = [f"window_dimensions = {array(window)}"]
    if strides:
        attributes.append(f"window_strides = {array(strides)}")
    if dilations:
        attributes.append(f"window_dilations = {array(dilations)}")
    attributes.append(f"padding = dense<{pads}> : tensor<{len(pads)}x2xi64>")
    types = f"({type_of(given.type)}, {one}) -> {type_of(out.type)}"
    return w.emit(
        f'"stablehlo.reduce_window"({x}, {start}) <{{{", ".join(attributes)}}}> ({{\n{w.indent}^bb0({a}: {one}, {b}: {one}):\n'
        f"{w.indent}  {made} = stablehlo.{name} {a}, {b} : {one}\n{w.indent}  stablehlo.return {made} : {one}\n"
        f"{w.indent}}}) : {types}"
    )


# -- networks


@writes("matmul")
def matmul(w, node, a, b, bias=None):
    x, y, out = node.inputs[0], node.inputs[1], node.outputs[0]
    lead = list(range(x.ndim - 2))
    batching = f"batching_dims = {lead} x {lead}, " if lead else ""
    types = f"({type_of(x.type)}, {type_of(y.type)}) -> {type_of(out.type)}"
    text = f"stablehlo.dot_general {a}, {b}, {batching}contracting_dims = [{x.ndim - 1}] x [{y.ndim - 2}], "
    product = w.emit(f"{text}precision = [HIGHEST, HIGHEST] : {types}")
    if bias is None:
        return product
    spread = w.broadcast(bias, out.dtype, node.inputs[2].shape, out.shape, [out.ndim - 1])
    return w.op("add", [product, spread], out.dtype, out.shape)


def _spatial(count: int) -> str:
    return ", ".join(str(i) for i in range(count))


def _convolve(
    w, x, k, x_type, k_type, out_type, labels: str, stride, pads, lhs, rhs, groups, reverse=False, batch=1
) -> str:
    count = len(stride)
    window = (
        f"stride = {list(stride)}, pad = {[list(p) for p in pads]}, lhs_dilate = {list(lhs)}, rhs_dilate = {list(rhs)}"
    )
    if reverse:
        window += f", reverse = [{', '.join(['true'] * count)}]"
    return w.emit(
        f"stablehlo.convolution({x}, {k}) dim_numbers = {labels}, window = {{{window}}} {{batch_group_count = {batch} : i64, "
        f"feature_group_count = {groups} : i64, precision_config = [#stablehlo<precision HIGHEST>, "
        f"#stablehlo<precision HIGHEST>]}} : ({type_of(x_type)}, {type_of(k_type)}) -> {type_of(out_type)}"
    )


@writes("conv_forward")
def conv(w, node, x, weight, bias=None):
    op, out, count = node.op, node.outputs[0], len(node.op.stride)
    labels = f"[b, f, {_spatial(count)}]x[o, i, {_spatial(count)}]->[b, f, {_spatial(count)}]"
    pads = list(zip(op.pad_low, op.pad_high, strict=True))
    ones = [1] * count
    result = _convolve(
        w,
        x,
        weight,
        node.inputs[0].type,
        node.inputs[1].type,
        out.type,
        labels,
        op.stride,
        pads,
        ones,
        op.dilation,
        op.groups,
    )
    if bias is None:
        return result
    return w.op(
        "add", [result, w.broadcast(bias, out.dtype, node.inputs[2].shape, out.shape, [1])], out.dtype, out.shape
    )


@writes("conv_backward_data")
def conv_backward_data(w, node, g, weight):
    op, out, count = node.op, node.outputs[0], len(node.op.stride)
    kernel, given = node.inputs[1], node.inputs[0]
    groups = op.groups
    o, i, *k = kernel.shape
    if groups > 1:  # (groups * o, i, ...) -> (o, groups * i, ...): a group's inputs are what its outputs were
        split = (groups, o // groups, i, *k)
        order = [1, 0, 2, *range(3, 3 + count)]
        moved = tuple(split[a] for a in order)
        weight = w.reshape(weight, kernel.dtype, kernel.shape, split)
        text = f"stablehlo.transpose {weight}, dims = {order} : ({tensor(kernel.dtype, split)}) -> {tensor(kernel.dtype, moved)}"
        weight = w.reshape(w.emit(text), kernel.dtype, moved, (o // groups, groups * i, *k))
    k_type = type(kernel.type)(kernel.dtype, (o // groups, groups * i, *k))
    labels = f"[b, f, {_spatial(count)}]x[i, o, {_spatial(count)}]->[b, f, {_spatial(count)}]"
    pads = []
    for n, m, size, s, low, d in zip(
        out.shape[2:], given.shape[2:], k, op.stride, op.pad_low, op.dilation, strict=True
    ):
        reach = (size - 1) * d
        first = reach - low
        pads.append((first, n + reach - ((m - 1) * s + 1) - first))
    ones = [1] * count
    return _convolve(
        w, g, weight, given.type, k_type, out.type, labels, ones, pads, op.stride, op.dilation, groups, reverse=True
    )


@writes("conv_backward_weight")
def conv_backward_weight(w, node, x, g):
    op, out, count = node.op, node.outputs[0], len(node.op.stride)
    given, grads = node.inputs
    labels = f"[f, b, {_spatial(count)}]x[i, o, {_spatial(count)}]->[f, b, {_spatial(count)}]"
    pads = []
    for n, m, k, s, low, d in zip(
        given.shape[2:], grads.shape[2:], op.kernel, op.stride, op.pad_low, op.dilation, strict=True
    ):
        pads.append((low, (k - 1) * d + (m - 1) * s + 1 - n - low))
    ones = [1] * count
    if op.groups > 1:
        w.refuse(node, "the gradient of a grouped convolution's weights")
    return _convolve(w, x, g, given.type, grads.type, out.type, labels, op.dilation, pads, ones, op.stride, 1)


def _pool_geometry(op, given):
    window, strides = [1, 1, *op.kernel], [1, 1, *op.stride]
    dilations = [1, 1, *op.dilation]
    pads = [[0, 0], [0, 0]]
    for n, m, k, s, p, d in zip(given.shape[2:], op.size, op.kernel, op.stride, op.padding, op.dilation, strict=True):
        pads.append([p, max((m - 1) * s + (k - 1) * d + 1 - n - p, 0)])
    return window, strides, dilations, pads


@writes("pool_max")
def pool_max(w, node, x):
    given, out = node.inputs[0], node.outputs[0]
    if getattr(w, "used", None) is not None and node.outputs[1] in w.used:
        w.refuse(node, "positions of maxima")
    geometry = _pool_geometry(node.op, given)
    return _windows(w, x, given, out, "maximum", initial("max", given.dtype), *geometry), ""


@writes("pool_avg")
def pool_avg(w, node, x):
    op, given, out = node.op, node.inputs[0], node.outputs[0]
    window, strides, dilations, pads = _pool_geometry(op, given)
    total = _windows(w, x, given, out, "add", 0, window, strides, dilations, pads)
    counts = np.ones(out.shape[2:])
    for axis, (n, m, k, s, p, d) in enumerate(
        zip(given.shape[2:], op.size, op.kernel, op.stride, op.padding, op.dilation, strict=True)
    ):
        at = np.arange(m)[:, None] * s - p + np.arange(k)[None] * d
        limit = (-p, n + p) if op.include_pad else (0, n)
        here = ((at >= limit[0]) & (at < limit[1])).sum(1)
        counts = counts * here.reshape([-1 if a == axis else 1 for a in range(len(op.size))])
    if counts.size and counts.min() == counts.max():
        divisor = w.full(float(counts.flat[0]), out.dtype, out.shape)
    else:
        whole = w.integers(counts.astype(np.int64))
        divisor = w.convert(whole, dtypes.int64, out.dtype, counts.shape)
        divisor = w.broadcast(divisor, out.dtype, counts.shape, out.shape, range(2, out.ndim))
    return w.op("divide", [total, divisor], out.dtype, out.shape)


@writes("sort")
def sort(w, node, x):
    return _sort(w, node.inputs[0], x, node.op.axis, node.op.descending)


@writes("sort_values")
def sort_values(w, node, x):
    return _sort(w, node.inputs[0], x, node.op.axis, node.op.descending)[0]


@writes("topk")
def topk(w, node, x):
    given, out, axis = node.inputs[0], node.outputs[0], node.op.axis
    names = _sort(w, given, x, axis, node.op.largest)
    types = [given.type, Type(dtypes.int64, given.shape)]
    return tuple(w.cut(n, t, [0] * given.ndim, out.shape) for n, t in zip(names, types, strict=True))


def _sort(w, given, x, axis: int, descending: bool) -> tuple[str, str]:
    at = w.iota(given.shape, axis)
    one, index = tensor(given.dtype), tensor(dtypes.int64)
    a, b, i, j = (w.fresh() for _ in range(4))
    lines, w.lines, constants, w._constants = w.lines, [], w._constants, {}
    first = w.compare("GT" if descending else "LT", a, b, given.dtype, ())
    if given.dtype.is_inexact:  # NaN is greater than everything
        odd, other = (w.compare("NE", v, v, given.dtype, ()) for v in (a, b))
        one_side = (
            w.op("and", [odd, w.op("not", [other], dtypes.bool_, ())], dtypes.bool_, ())
            if descending
            else w.op("and", [other, w.op("not", [odd], dtypes.bool_, ())], dtypes.bool_, ())
        )
        first = w.op("or", [first, one_side], dtypes.bool_, ())
    w.line(f"stablehlo.return {first} : {tensor(dtypes.bool_)}")
    body, w.lines, w._constants = "\n".join(w.lines), lines, constants
    name = w.fresh()
    both = f"{type_of(given.type)}, {tensor(dtypes.int64, given.shape)}"
    w.line(
        f'{name}:2 = "stablehlo.sort"({x}, {at}) <{{dimension = {axis} : i64, is_stable = true}}> ({{\n'
        f"{w.indent}^bb0({a}: {one}, {b}: {one}, {i}: {index}, {j}: {index}):\n{body}\n{w.indent}}}) : ({both}) -> ({both})"
    )
    return f"{name}#0", f"{name}#1"
