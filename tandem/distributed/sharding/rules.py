"""Sharding rules of the primitives: one for each kind. See Note [Factors] in factors.py.

A primitive without a rule, or whose rule gives None, runs on whole operands: that is always right.
"""

from __future__ import annotations

import math

import tandem.ops as F
from tandem.distributed.sharding.factors import Rule
from tandem.distributed.sharding.layout import Grid
from tandem.graph.ir import Node
from tandem.ops.define import Elementwise

RULES: dict = {}


def rule(*names: str):
    def decorate(fn):
        for name in names:
            RULES[name] = fn
        return fn

    return decorate


def rule_of(node: Node, grid: Grid, given) -> Rule | None:
    """The rule of a node, whose operands have the placements `given`."""
    found = RULES.get(node.op.name)
    if found is not None:
        return found(node, grid, given)
    return _elementwise(node) if isinstance(node.op, Elementwise) else None


def with_fields(op, **changes):
    """The same operator with some attributes changed."""
    return type(op)(*(changes.get(f, getattr(op, f)) for f in op._fields))


def _shapes(node: Node) -> tuple[list[tuple], list[tuple]]:
    return [v.shape for v in node.inputs], [v.shape for v in node.outputs]


def _together(node: Node, whole=(), linear=(), make=None, contracted=None) -> Rule:
    """Operands and results of one shape, or without axes; `whole`: axes that the operator needs all of."""
    axes = [None if d in whole else d for d in range(max((v.ndim for v in node.inputs), default=0))]

    def factors(shape):
        return tuple(axes[: len(shape)])

    return Rule([factors(v.shape) for v in node.inputs], [factors(v.shape) for v in node.outputs],
                contracted or {}, linear, make)  # fmt: skip


# -- elementwise

_ONE, _BOTH = (frozenset({0}),), (frozenset({0, 1}),)
_LINEAR = {
    "add": _BOTH, "sub": _BOTH, "mul": (frozenset({0}), frozenset({1})), "div": _ONE, "neg": _ONE, "copy": _ONE, "conj": _ONE,
    "where": (frozenset({1, 2}),), "complex": _BOTH, "stop_gradient": _ONE, "no_derivative": _ONE,
}  # fmt: skip


def _elementwise(node: Node) -> Rule:
    linear = _LINEAR.get(node.op.name, ())
    if node.op.name == "cast":
        old, new = node.inputs[0].dtype, node.outputs[0].dtype
        keeps = old.is_inexact and new.is_inexact and new.itemsize >= old.itemsize and not old.is_complex
        linear = _ONE if keeps else ()
    if not node.outputs[0].dtype.is_inexact:
        linear = ()
    return _together(node, linear=linear)


@rule("bessel", "gammainc", "gammaincc", "gcd", "orthogonal_polynomial", "zeta", "again", "contiguous", "arrange", "check_index",
      "check_divisor", "check_weights", "cross_entropy_term", "gelu", "part", "stage_boundary")  # fmt: skip
def _element_by_element(node, grid, given):
    linear = _ONE if node.op.name in ("again", "contiguous", "arrange", "part", "stage_boundary") else ()
    return _together(node, linear=linear)


# -- reductions

_REDUCTIONS = {"sum": "sum", "prod": "product", "max": "max", "min": "min", "any": "max", "all": "min"}


@rule("reduce")
def _reduce(node, grid, given):
    op, x = node.op, node.inputs[0]
    kind = _REDUCTIONS.get(op.kind)
    inside = tuple(d if kind is not None or d not in op.axes else None for d in range(x.ndim))
    out = tuple(None if d in op.axes else d for d in range(x.ndim))
    contracted = dict.fromkeys(op.axes, kind) if kind is not None else {}
    empty = any(x.shape[d] < math.prod(grid.shape) for d in op.axes)  # a rank without elements has no extremum
    if empty and op.kind in ("max", "min"):
        inside, contracted = out, {}
    return Rule([inside], [out], contracted, _ONE if op.kind == "sum" and x.dtype.is_inexact else ())


# -- movements


@rule("permute")
def _permute(node, grid, given):
    x = node.inputs[0]
    return Rule([tuple(range(x.ndim))], [tuple(node.op.axes)], linear=_ONE)


@rule("expand")
def _expand(node, grid, given):
    x, made = node.inputs[0], node.op.shape
    kept = tuple(d if a == b else None for d, (a, b) in enumerate(zip(x.shape, made, strict=True)))

    def make(values, inputs, outputs):
        sizes = tuple(n if k is None else v for n, k, v in zip(made, kept, values[0].shape, strict=True))
        return F.Expand(sizes)(values[0])

    return Rule([kept], [kept], linear=_ONE, make=make)


@rule("slice", "embed")
def _slice(node, grid, given):
    op, x = node.op, node.inputs[0]
    field = "sizes" if op.name == "slice" else "shape"
    made = getattr(op, field)
    kept = tuple(
        d if a == b and start == 0 and step == 1 else None
        for d, (a, b, start, step) in enumerate(zip(x.shape, made, op.starts, op.steps, strict=True))
    )

    def make(values, inputs, outputs):
        sizes = tuple(n if k is None else v for n, k, v in zip(made, kept, values[0].shape, strict=True))
        return with_fields(op, **{field: sizes})(values[0])

    return Rule([kept], [kept], linear=_ONE, make=make)


def _groups(old: tuple, new: tuple) -> list[tuple[list[int], list[int]]]:
    """Axes of two shapes with the same elements, in groups that have the same product."""
    groups, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        mine, theirs = [i] if i < len(old) else [], [j] if j < len(new) else []
        a, b = old[i] if mine else 1, new[j] if theirs else 1
        i, j = i + len(mine), j + len(theirs)
        while a != b:
            if a < b:
                mine.append(i)
                a, i = a * old[i], i + 1
            else:
                theirs.append(j)
                b, j = b * new[j], j + 1
        groups.append((mine, theirs))
    return groups


@rule("reshape")
def _reshape(node, grid, given):
    """Of axes that are joined or split the first may be divided, if that leaves whole rows of the others."""
    x, made = node.inputs[0], node.op.shape
    if 0 in x.shape:
        return None
    inside, out = [None] * x.ndim, [None] * len(made)
    for number, (mine, theirs) in enumerate(_groups(tuple(x.shape), tuple(made))):
        mine, theirs = [d for d in mine if x.shape[d] != 1], [d for d in theirs if made[d] != 1]
        if not mine:
            continue
        axes = [m for m, p in enumerate(given[0]) if p.is_shard(mine[0])]
        alone = len(mine) == len(theirs) == 1
        if alone or (grid.divides(x.shape[mine[0]], axes) and grid.divides(made[theirs[0]], axes)):
            inside[mine[0]] = out[theirs[0]] = number

    def make(values, inputs, outputs):
        return F.Reshape(grid.local_shape(made, outputs[0]))(values[0])

    return Rule([tuple(inside)], [tuple(out)], linear=_ONE, make=make)


@rule("diagonal")
def _diagonal(node, grid, given):
    n = node.inputs[0].ndim
    return Rule([(*range(n - 2), None, None)], [(*range(n - 2), None)], linear=_ONE)


@rule("as_real", "as_complex")
def _complex_parts(node, grid, given):
    n = min(node.inputs[0].ndim, node.outputs[0].ndim)
    return Rule([(*range(n), *[None] * (node.inputs[0].ndim - n))], [(*range(n), *[None] * (node.outputs[0].ndim - n))],
                linear=_ONE)  # fmt: skip


@rule("roll")
def _roll(node, grid, given):
    return _together(node, whole=node.op.axes, linear=_ONE)


@rule("concat")
def _concat(node, grid, given):
    return _together(node, whole=(node.op.axis,), linear=(frozenset(range(len(node.inputs))),))


# -- operators along an axis


@rule("sort", "sort_values", "topk", "select", "cumulative", "running_extremum", "linear_scan")
def _along(node, grid, given):
    axis = node.op.axis
    if node.inputs[0].ndim == 0:
        return None
    linear = _ONE if node.op.name == "cumulative" and node.op.kind == "sum" else ()
    return _together(node, whole=(axis % node.inputs[0].ndim,), linear=linear)


@rule("fft", "rfft", "irfft")
def _fourier(node, grid, given):
    n = node.inputs[0].ndim
    axes = node.op.axes if node.op.name == "fft" else (node.op.axis,)
    return _together(node, whole={a % n for a in axes}, linear=_ONE)


@rule("softmax", "log_softmax", "log_sum_exp", "inverse_root_mean_square")
def _composite_along(node, grid, given):
    axes = (node.op.axis,) if hasattr(node.op, "axis") else node.op.axes
    return _unless_divided(node, given, {a % node.inputs[0].ndim for a in axes}, lambda: _together(node, whole=axes))


def _unless_divided(node, given, axes, build):
    """None, so that the operator is written in others, where its own axes are divided."""
    return None if any(p.is_shard() and p.dim in axes for p in given[0]) else build()


@rule("normalize")
def _normalize(node, grid, given):
    op, x = node.op, node.inputs[0]
    if any(p.is_shard() and p.dim in op.axes for p in given[0]):
        return None
    axes = tuple(None if d in op.axes else d for d in range(x.ndim))
    inside = [axes] + [
        tuple(None if d in op.axes or v.shape[d] == 1 else d for d in range(x.ndim)) for v in node.inputs[1:]
    ]
    return Rule(inside, [axes] * len(node.outputs))


# -- products


@rule("matmul")
def _matmul(node, grid, given):
    n = node.inputs[0].ndim - 2
    batch = tuple(range(n))
    bias = [("n",)] if len(node.inputs) == 3 else []
    return Rule([(*batch, "m", "k"), (*batch, "k", "n"), *bias], [(*batch, "m", "n")], {"k": "sum"}, _PRODUCT[len(bias)],
                _biased_once(node, grid))  # fmt: skip


_PRODUCT = (frozenset({0}), frozenset({1})), (frozenset({0, 2}), frozenset({1, 2}))


def _biased_once(node: Node, grid: Grid):
    """A product whose bias is added by one of the ranks that have summands of it."""

    def make(values, inputs, outputs):
        summands = zip(grid.coordinate, inputs[-1], outputs[0], strict=True)
        adds = all(c == 0 or bias.is_partial() for c, bias, out in summands if out.is_partial())
        return node.op(*(values if adds else values[:2]))

    return make if len(node.inputs) == 3 else None


@rule("linear")
def _linear(node, grid, given):
    bias = [("n",)] if len(node.inputs) == 3 else []
    return Rule(
        [("m", "k"), ("n", "k"), *bias], [("m", "n")], {"k": "sum"}, _PRODUCT[len(bias)], _biased_once(node, grid)
    )


@rule("conv_forward")
def _conv_forward(node, grid, given):
    op, (x, _, *bias) = node.op, node.inputs
    spatial = (None,) * (x.ndim - 2)
    if op.groups != 1:
        return Rule([("n", None, *spatial), (None, None, *spatial), *[(None,)] * len(bias)], [("n", None, *spatial)])
    return Rule([("n", "c", *spatial), ("o", "c", *spatial), *[("o",)] * len(bias)], [("n", "o", *spatial)], {"c": "sum"},
                _PRODUCT[len(bias)], _biased_once(node, grid))  # fmt: skip


@rule("conv_backward_data")
def _conv_backward_data(node, grid, given):
    spatial = (None,) * (node.inputs[0].ndim - 2)
    linear = (frozenset({0}), frozenset({1}))
    if node.op.groups != 1:
        return Rule([("n", None, *spatial), (None, None, *spatial)], [("n", None, *spatial)], {}, linear)
    return Rule([("n", "o", *spatial), ("o", "c", *spatial)], [("n", "c", *spatial)], {"o": "sum"}, linear)


@rule("conv_backward_weight")
def _conv_backward_weight(node, grid, given):
    spatial = (None,) * (node.inputs[0].ndim - 2)
    linear = (frozenset({0}), frozenset({1}))
    if node.op.groups != 1:
        return Rule([("n", None, *spatial), ("n", None, *spatial)], [(None, None, *spatial)], {"n": "sum"}, linear)
    return Rule([("n", "c", *spatial), ("n", "o", *spatial)], [("o", "c", *spatial)], {"n": "sum"}, linear)


def _leading(node: Node, count: int, linear=()) -> Rule:
    """Operators that do the same for all of some leading axes."""

    def factors(shape):
        return tuple(d if d < count else None for d in range(len(shape)))

    return Rule([factors(v.shape) for v in node.inputs], [factors(v.shape) for v in node.outputs], linear=linear)


@rule("pool_adaptive_avg", "pool_adaptive_avg_backward", "pool_adaptive_max", "pool_avg", "pool_avg_backward", "pool_max",
      "pool_max_backward", "pool_max_taps", "pool_max_taps_backward", "attention", "attention_backward")  # fmt: skip
def _planes(node, grid, given):
    if any(v.ndim < 3 for v in node.inputs):
        return None
    return _leading(node, 2)


@rule("flex_attention", "flex_attention_backward")
def _flexible(node, grid, given):
    """Batches, and heads where each has its own keys. With score functions, which see indices of the whole, it is made of
    others."""
    q, k = node.inputs[node.op.leading - 5 if node.op.leading == 6 else 0 :][:2]
    if node.op.graphs() or node.op.learned or node.op.blocks:
        return None
    sizes = q.shape[:2] if k.shape[1] == q.shape[1] else q.shape[:1]

    def factors(shape):
        return tuple(d if d < len(sizes) and shape[d] == sizes[d] else None for d in range(len(shape)))

    return Rule([factors(v.shape) for v in node.inputs], [factors(v.shape) for v in node.outputs])


@rule("cholesky", "cofactor", "det", "eig", "eigh", "eigvals", "eigvalsh", "geqrf", "householder_product", "inverse",
      "ldl_factor", "ldl_solve", "lu_factor", "lu_solve", "matrix_exp", "permutation", "pinv", "qr", "slogdet",
      "solve_triangular", "svd", "svdvals")  # fmt: skip
def _matrices(node, grid, given):
    """Operators on the last axes of matrices: everything before them is a batch, the same for all operands."""
    batch = node.inputs[0].ndim - (1 if node.op.name == "permutation" else 2)
    lead = node.inputs[0].shape[:batch]
    if batch < 1 or any(v.shape[:batch] != lead for v in (*node.inputs, *node.outputs)):
        return None
    return _leading(node, batch)


# -- lookups


def _in_range(index, start: int, count: int):
    """(index from the start of a part, whether it is in the part)"""
    low = F.full(index.shape, start, dtype=index.dtype)
    here = F.Sub()(index, low)
    zero = F.full(index.shape, 0, dtype=index.dtype)
    end = F.full(index.shape, count, dtype=index.dtype)
    inside = F.bitwise_and(F.LessEqual()(zero, here), F.Less()(here, end))
    return F.Where()(inside, here, zero), inside


def _masked(value, inside):
    """value where `inside`, whose axes are the first ones of value, and zeros elsewhere."""
    shape = tuple(inside.shape) + (1,) * (value.ndim - inside.ndim)
    mask = F.Expand(tuple(value.shape))(F.Reshape(shape)(inside))
    return F.Where()(mask, value, F.full(value.shape, 0, dtype=value.dtype))


@rule("gather", "rows")
def _gather(node, grid, given):
    """A table that is divided by its rows gives zeros for rows of other ranks."""
    x, *indices = node.inputs
    k = len(indices)
    index = tuple(("i", d) for d in range(indices[0].ndim))
    rest = tuple(("r", d) for d in range(k, x.ndim))
    table = (
        ("table",) if k == 1 and x.dtype.is_inexact and 0 not in grid.local_shape(x.shape, given[0]) else (None,) * k
    )
    if table == ("table",) and x.shape[0] < math.prod(grid.shape):
        table = (None,)

    def make(values, inputs, outputs):
        if not any(p.is_shard(0) for p in inputs[0]):
            return node.op(*values)
        start, count = grid.spans(x.shape, inputs[0])[0]
        at, inside = _in_range(values[1], start, count)
        return _masked(F.Gather()(values[0], at), inside)

    contracted = {"table": "sum"} if table == ("table",) else {}
    return Rule([(*table, *rest), *[index] * k], [(*index, *rest)], contracted, _ONE, make)


def is_zero(value) -> bool:
    while value.node.op.name in ("expand", "reshape", "cast", "copy"):
        value = value.node.inputs[0]
    return value.node.op.name == "constant" and value.node.op.value == 0


@rule("scatter")
def _scatter(node, grid, given):
    """Sums into zeros from parts of the updates are partial sums."""
    base, _, *indices = node.inputs
    k = len(indices)
    sums = node.op.mode == "add" and is_zero(base) and base.dtype.is_inexact
    index = tuple(("i", d) if sums else None for d in range(indices[0].ndim))
    rest = tuple(("r", d) for d in range(k, base.ndim))
    contracted = {f: "sum" for f in index if f is not None}
    return Rule([(*(None,) * k, *rest), (*index, *rest), *[index] * k], [(*(None,) * k, *rest)], contracted,
                (frozenset({1}),) if sums else ())  # fmt: skip


@rule("pick")
def _pick(node, grid, given):
    x = node.inputs[0]
    axis = node.op.axis % x.ndim
    own = "table" if x.dtype.is_inexact and x.shape[axis] >= math.prod(grid.shape) else None
    rest = tuple(None if d == axis else d for d in range(x.ndim))

    def make(values, inputs, outputs):
        if not any(p.is_shard(axis) for p in inputs[0]):
            return node.op(*values)
        start, count = grid.spans(x.shape, inputs[0])[axis]
        at, inside = _in_range(values[1], start, count)
        made = node.op(values[0], at)
        return F.Where()(inside, made, F.full(made.shape, 0, dtype=made.dtype))

    return Rule([tuple(own if d == axis else d for d in range(x.ndim)), rest], [rest], {"table": "sum"} if own else {},
                _ONE, make)  # fmt: skip


@rule("place")
def _place(node, grid, given):
    rest = tuple(None if d == node.op.axis else d for d in range(node.inputs[0].ndim))
    return Rule([rest, rest], [rest], linear=_ONE)


@rule("isin")
def _isin(node, grid, given):
    return Rule([tuple(range(node.inputs[0].ndim)), (None,)], [tuple(range(node.inputs[0].ndim))])


@rule("segment_reduce")
def _segments(node, grid, given):
    n = node.inputs[0].ndim
    return Rule([(None, *range(1, n)), (None,)], [(None, *range(1, n))])
