"""Activations, recognised in the primitives that they expand to."""

from __future__ import annotations

import math

from tandem import dtypes
from tandem.graph.ir import Node, Value
from tandem.passes.rewrite import any_, constant_of, op_

x, low, high, slope, inner = any_("x"), any_("low"), any_("high"), any_("slope"), any_("inner")


def _clipped(value):
    """relu6 and hardtanh."""
    return op_("where", op_("less_equal", value, low), low, op_("where", op_("less_equal", high, value), high, value))


_at_least = op_("where", op_("less", x, low) + op_("isnan", low), low, x, bind="inner")
_sqrt_half = op_("erf", x * math.sqrt(0.5))

# What an activation looks like, and its name; `low` and `high` are the two numbers of clip, `slope` that of leaky_relu.
_FORMS = [
    (op_("relu", x), "relu"),
    (_clipped(x), "clip"),
    (op_("where", op_("less", high, inner) + op_("isnan", high), high, _at_least), "clip"),
    (x * op_("sigmoid", x), "silu"),
    (op_("sigmoid", x), "sigmoid"),
    (x * (_clipped(x + any_("shift")) / any_("sixth")), "hardswish"),
    (op_("where", op_("less", 0.0, x), x, x * slope), "leaky_relu"),
    (x * 0.5 * (_sqrt_half + 1.0), "gelu"),
]


def activations(node: Node):
    """(what it is computed from, name, alpha, beta) for each activation that a node may be the end of. Clip has two numbers."""
    if len(node.outputs) != 1 or node.control or node.outputs[0].dtype is not dtypes.float32:
        return
    for pattern, name in _FORMS:
        bound: dict[str, Value] = {}
        if not pattern.match(node.outputs[0], bound):
            continue
        numbers = {k: constant_of(v) for k, v in bound.items() if k not in ("x", "inner")}
        if any(n is None for n in numbers.values()) or numbers.get("low", 0) > numbers.get("high", math.inf):
            continue
        if name == "hardswish" and numbers != {"low": 0, "high": 6, "shift": 3, "sixth": 6}:
            continue
        alpha = numbers.get("slope", numbers.get("low", 0.0) if name == "clip" else 0.0)
        yield bound["x"], name, float(alpha), float(numbers["high"]) if name == "clip" else 0.0
