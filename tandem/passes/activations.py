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


def _bounded(value):
    """clip."""
    least = op_("where", op_("less", value, low) + op_("isnan", low), low, value, bind="inner")
    return op_("where", op_("less", high, inner) + op_("isnan", high), high, least)


scale, shift, half = any_("scale"), any_("shift"), any_("half")
_erf = op_("erf", x * scale) + 1.0
_erf_of_quotient = op_("erf", x / scale) + 1.0

# What an activation looks like, its name, and what its numbers must be. Clip has `low` and `high`, leaky_relu has `slope`.
_FORMS = [
    (op_("relu", x), "relu", {}),
    (op_("maximum", x, 0.0), "relu", {}),
    (_clipped(x), "clip", {}),
    (_bounded(x), "clip", {}),
    (op_("minimum", op_("maximum", x, low), high), "clip", {}),
    (op_("maximum", op_("minimum", x, high), low), "clip", {}),
    (x * op_("sigmoid", x), "silu", {}),
    (op_("sigmoid", x), "sigmoid", {}),
    (x * (_clipped(x + shift) / scale), "hardswish", {"low": 0, "high": 6, "shift": 3, "scale": 6}),
    (x * _bounded(x * scale + shift), "hardswish", {"low": 0, "high": 1, "shift": 0.5, "scale": 1 / 6}),
    (op_("where", op_("less", 0.0, x), x, x * slope), "leaky_relu", {}),
    (x * half * _erf, "gelu", {"half": 0.5, "scale": math.sqrt(0.5)}),
    (x * _erf * half, "gelu", {"half": 0.5, "scale": math.sqrt(0.5)}),
    (x * _erf_of_quotient * half, "gelu", {"half": 0.5, "scale": math.sqrt(2)}),
]


def activations(node: Node):
    """(what it is computed from, name, alpha, beta) for each activation that a node may be the end of. Clip has two numbers."""
    if len(node.outputs) != 1 or node.control or node.outputs[0].dtype is not dtypes.float32:
        return
    for pattern, name, wanted in _FORMS:
        bound: dict[str, Value] = {}
        if not pattern.match(node.outputs[0], bound):
            continue
        numbers = {k: constant_of(v) for k, v in bound.items() if k not in ("x", "inner")}
        if any(n is None for n in numbers.values()) or numbers.get("low", 0) > numbers.get("high", math.inf):
            continue
        if any(not math.isclose(numbers[k], n, rel_tol=1e-6, abs_tol=1e-12) for k, n in wanted.items()):  # float32
            continue
        alpha = numbers.get("slope", numbers.get("low", 0.0) if name == "clip" else 0.0)
        yield bound["x"], name, float(alpha), float(numbers["high"]) if name == "clip" else 0.0
