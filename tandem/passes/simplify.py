"""simplify: identities that change no bit of the result.

What can change one (`x + 0` turns -0.0 into 0.0) is in `fast_math`, which no pipeline asks for unless told to.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.graph.ir import Graph, Value
from tandem.graph.symbolic import product
from tandem.graph.verify import same_type
from tandem.ops.define import Elementwise, LibraryOp
from tandem.ops.join import Concat
from tandem.ops.movement import Reshape, Slice
from tandem.ops.prepare import constant
from tandem.ops.reduce import Reduce
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild
from tandem.passes.rewrite import Rules, any_, constant_of, op_

x, y, c = any_("x"), any_("y"), any_("c")


def same(a, b) -> bool:
    """Whether sizes, or tuples of them, are known to be equal. Unlike `==` this writes no guard."""
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a is b or (type(a) is int and type(b) is int and a == b)


def _if_real(value: Value, out: Value) -> Value | None:
    """value for out, unless complex: there a factor of 1 + 0i can still turn an infinity into NaN, a zero into its opposite."""
    return None if out.dtype.is_complex else _if_like(value, out)


def _if_like(value: Value, out: Value) -> Value | None:
    """value, if it can stand for out: a scalar may have met something larger."""
    return value if value.dtype is out.dtype and same(value.shape, out.shape) else None


# -- arithmetic

arithmetic = Rules(
    (x * 1, lambda x, out: _if_real(x, out)),                          # x * 1 -> x
    (x / 1, lambda x, out: _if_real(x, out)),                          # x / 1 -> x
    (x - 0, lambda x, out: _if_like(x, out)),                          # x - 0 -> x          (-0.0 - 0.0 is -0.0)
    (x + -0.0, lambda x, out: _if_real(x, out)),                       # x + -0.0 -> x
    (x + 0, lambda x, out: _if_like(x, out) if not x.dtype.is_inexact else None),  # x + 0 -> x, integers
    (op_("neg", -x), lambda x: x),                                              # -(-x) -> x
    (x + (-y), lambda x, y: F.Sub()(x, y) if x.dtype.is_floating else None),  # x + (-y) -> x - y
    (x - (-y), lambda x, y: F.Add()(x, y) if x.dtype.is_floating else None),  # x - (-y) -> x + y
    ((-x) * (-y), lambda x, y: F.Mul()(x, y)),                         # (-x) * (-y) -> x * y
    (op_("stop_gradient", x), lambda x: x),                            # gradients have been taken when passes run
    (op_("abs", -x), lambda x: F.Abs()(x) if x.dtype.is_floating else None),  # |-x| -> |x|
    (op_("abs", op_("abs", x, bind="y")), lambda y: y),                # ||x|| -> |x|
    (op_("relu", op_("relu", x, bind="y")), lambda y: y),              # relu(relu(x)) -> relu(x)
    (op_("maximum", x, x), lambda x: x),                               # max(x, x) -> x
    (op_("minimum", x, x), lambda x: x),                               # min(x, x) -> x
    (op_("logical_not", op_("logical_not", x)), lambda x: x),          # not not x -> x
)  # fmt: skip


# -- selection


def _where(c, x, y, out):
    known = constant_of(c)
    return None if known is None else _if_like(x if known else y, out)


selection = Rules(
    (op_("where", c, x, y), _where),                                                            # where(True, x, y) -> x
    (op_("where", c, x, x), lambda x, out: _if_like(x, out)),                                   # where(c, x, x) -> x
    (op_("where", op_("logical_not", c), x, y), lambda c, x, y: F.Where()(c, y, x)),  # where(not c, x, y) -> where(c, y, x)
)  # fmt: skip


# -- conversions

_LOSSLESS = {  # every value of the left type is one of the right types
    "bool": {
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
    },
    "uint8": {"uint16", "uint32", "uint64", "int16", "int32", "int64"},
    "uint16": {"uint32", "uint64", "int32", "int64"},
    "uint32": {"uint64", "int64"},
    "int8": {"int16", "int32", "int64"},
    "int16": {"int32", "int64"},
    "int32": {"int64"},
    "float16": {"float32", "float64"},
    "bfloat16": {"float32", "float64"},
    "float32": {"float64"},
}


def _cast_twice(x, y, out):
    if y.dtype.name in _LOSSLESS.get(x.dtype.name, ()):
        return x if x.dtype is out.dtype else F.Cast(out.dtype)(x)
    return None


def _cast_around(x, y, z, out):
    return z.op(x) if x.dtype is out.dtype and y.dtype.name in _LOSSLESS.get(x.dtype.name, ()) else None


conversions = Rules(
    (op_("cast", x), lambda x, out: x if x.dtype is out.dtype else None),  # cast[t](x of type t) -> x
    (op_("cast", op_("cast", x, bind="y")), _cast_twice),  # cast(wider(x)) -> cast(x)
    *(  # cast[t](move(wider(x of type t))) -> move(x)
        (op_("cast", op_(move, op_("cast", x, bind="y"), bind="z")), _cast_around)
        for move in ("reshape", "permute", "slice")
    ),
)


# -- movements


def _slice_of_slice(x, y, out):
    inner, outer = y.op, out.op
    starts = tuple(s + t * d for s, t, d in zip(inner.starts, outer.starts, inner.steps, strict=True))
    steps = tuple(a * b for a, b in zip(inner.steps, outer.steps, strict=True))
    return F.Slice(starts, steps, outer.sizes)(x)


def _whole(op, shape) -> bool:
    return all(same(s, 0) for s in op.starts) and all(same(s, 1) for s in op.steps) and same(op.sizes, shape)


def _slice_of_concat(out):
    """The part of a concatenation that lies within one of its inputs."""
    op, joined = out.op, out.node.inputs[0].node
    axis, start = joined.op.axis, 0
    if not same(op.steps[axis], 1):
        return None
    first, size = op.starts[axis], op.sizes[axis]
    for part in joined.inputs:
        length = part.shape[axis]
        if not all(type(d) is int for d in (start, length, first, size)):
            return None
        if start <= first and first + size <= start + length:
            return F.Slice((*op.starts[:axis], first - start, *op.starts[axis + 1 :]), op.steps, op.sizes)(part)
        start = start + length
    return None


def concat_of_slices(out: Value) -> Value | None:
    """concat(x[:a], x[a:b], x[b:]) -> x, or the slice of x that the parts make up."""
    parts = out.node.inputs
    if len(parts) == 1:
        return parts[0]
    if not _is_one_slice(out):
        return None
    first = parts[0].op
    return F.Slice(first.starts, first.steps, out.shape)(parts[0].node.inputs[0])


def _is_one_slice(out: Value) -> bool:
    """Whether the parts of a concatenation are slices of one value, one behind the other."""
    axis, parts = out.op.axis, out.node.inputs
    if any(not isinstance(p.op, Slice) or p.node.inputs[0] is not parts[0].node.inputs[0] for p in parts):
        return False
    first = parts[0].op
    at = first.starts[axis]
    for p in parts:
        others = all(
            same(p.op.starts[i], first.starts[i]) and same(p.op.steps[i], first.steps[i])
            for i in range(p.ndim)
            if i != axis
        )
        if not others or not same(p.op.starts[axis], at) or not same(p.op.steps[axis], 1):
            return False
        at = at + p.shape[axis]
    return True


def _computed(value: Value) -> bool:
    """Whether value has memory of its own, in row-major order if it is a reshape of something computed."""
    while isinstance(value.op, Reshape):
        value = value.node.inputs[0]
    return isinstance(value.op, (Elementwise, LibraryOp, Reduce))


movements = Rules(
    (op_("permute", x), lambda x, out: x if out.op.axes == tuple(range(x.ndim)) else None),     # permute in order -> x
    (op_("permute", op_("permute", x, bind="y")),                                               # permute(permute(x)) -> permute(x)
     lambda x, y, out: F.Permute(tuple(y.op.axes[a] for a in out.op.axes))(x)),
    (op_("reshape", x), lambda x, out: x if same(x.shape, out.shape) else None),                # reshape to its own shape -> x
    (op_("reshape", op_("reshape", x)), lambda x, out: F.Reshape(out.shape)(x)),                # reshape(reshape(x)) -> reshape(x)
    (op_("expand", x), lambda x, out: x if same(x.shape, out.shape) else None),                 # expand to its own shape -> x
    (op_("expand", op_("expand", x)), lambda x, out: F.Expand(out.shape)(x)),                   # expand(expand(x)) -> expand(x)
    (op_("slice", x), lambda x, out: x if _whole(out.op, x.shape) else None),                   # x[:] -> x
    (op_("slice", op_("slice", x, bind="y")), _slice_of_slice),                                 # x[a:b][c:d] -> x[e:f]
    (op_("slice", op_("embed", x, bind="y")), lambda x, y, out:                                 # cut out what was put in -> x
     x if same(out.op.starts, y.op.starts) and same(out.op.steps, y.op.steps) and same(out.shape, x.shape) else None),
    (op_("slice", any_("x")), lambda x, out: _slice_of_concat(out) if isinstance(x.op, Concat) else None),
    (op_("copy", x), lambda x: x if _computed(x) else None),          # copy of what is fresh memory anyway -> x
)  # fmt: skip


# -- reductions


def _keeps_all(x, out):
    """max, min, prod over axes of size 1; a sum is not here, because it may start from 0 and 0 + -0.0 is 0."""
    if out.op.kind in ("max", "min", "prod") and all(same(x.shape[a], 1) for a in out.op.axes):
        return _if_like(x, out)
    return None


def _reduce_twice(x, y, out):
    exact = out.op.kind in ("max", "min", "any", "all") or (out.op.kind in ("sum", "prod") and x.dtype.is_integer)
    if not exact or y.op.kind != out.op.kind or y.dtype is not out.dtype:
        return None
    return F.Reduce(out.op.kind, tuple(sorted({*y.op.axes, *out.op.axes})), out.op.dtype or y.op.dtype)(x)


def _sum_of_one_number(x, out):
    """sum(c, c, ...) -> c * n where both, and all partial sums, are integers that the type holds exactly."""
    number, count = constant_of(x), product(x.shape[a] for a in out.op.axes)
    if out.op.kind != "sum" or number is None or type(count) is not int or isinstance(number, complex):
        return None
    limit = {"float32": 2**24, "float64": 2**53}.get(out.dtype.name, 2**31 if out.dtype.is_integer else 0)
    if number != int(number) or abs(number) * max(count, 1) >= limit or number == 0:
        return None
    total = constant(number * count, out.dtype)
    return F.Expand(out.shape)(F.Reshape((1,) * out.ndim)(total)) if out.ndim else total


reductions = Rules(
    (op_("reduce", x), _keeps_all),  # max of one element -> the element
    (op_("reduce", op_("reduce", x, bind="y")), _reduce_twice),  # max(max(x, 0), 1) -> max(x, (0, 1))
    (op_("reduce", x), _sum_of_one_number),  # sum(c) -> c * n
)

joins = Rules((op_("concat", any_("x")), lambda x: x))  # concat(x) -> x

identities = arithmetic + selection + conversions + movements + reductions + joins


# -- what may change a bit

fast_math = Rules(
    (x + 0, lambda x, out: _if_like(x, out)),                         # x + 0 -> x           (-0.0 + 0.0 is 0.0)
    (x - x, lambda x: F.Expand(x.shape)(F.Reshape((1,) * x.ndim)(constant(0, x.dtype))) if x.ndim else None),  # inf - inf is NaN
    (op_("reduce", op_("expand", x, bind="y"), bind="out"),           # sum(expand(x)) -> x * n: one rounding instead of many
     lambda x, y, out: _sum_of_expand(x, y, out)),
)  # fmt: skip


def _sum_of_expand(x, y, out):
    axes = out.op.axes
    if out.op.kind != "sum" or x.dtype is not out.dtype or not all(same(x.shape[a], 1) for a in axes):
        return None
    repeated = product(y.shape[a] for a in axes)
    kept = tuple(1 if a in axes else n for a, n in enumerate(y.shape))
    if type(repeated) is not int or not same(kept, x.shape):
        return None
    return F.Mul()(x, constant(repeated, x.dtype))


@graph_pass
def simplify(graph: Graph) -> Graph:
    return _joined_slices(identities.apply(graph))


@graph_pass
def simplify_fast(graph: Graph) -> Graph:
    """simplify with `fast_math`; not in the pipeline."""
    return (identities + fast_math).apply(graph)


def _joined_slices(graph: Graph) -> Graph:
    """concat takes any number of inputs, which no pattern says."""
    joins = [n for n in graph.nodes if isinstance(n.op, Concat)]
    if not any(len(n.inputs) == 1 or _is_one_slice(n.outputs[0]) for n in joins):
        return graph

    def visit(node, inputs):
        if not isinstance(node.op, Concat):
            return None
        value = node.outputs[0] if inputs == node.inputs else node.op(*inputs)
        whole = concat_of_slices(value)
        return (
            whole
            if whole is not None and same_type(whole.type, value.type)
            else (None if value is node.outputs[0] else value)
        )

    return identities.apply(rebuild(graph, visit))
