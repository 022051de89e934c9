"""Optimiser steps of the domain ai.onnx.preview.training."""

from __future__ import annotations

import tandem.ops as ops
from tandem.onnx.registry import TRAINING, onnx_op


def _groups(xs, kinds: int):
    """[first of each kind], [second of each kind] ...: operands come kind by kind."""
    count = len(xs) // kinds
    return zip(*(xs[k * count : (k + 1) * count] for k in range(kinds)), strict=True)


def _by_kind(rows) -> tuple:
    return tuple(v for kind in zip(*rows, strict=True) for v in kind)


@onnx_op("Adagrad", domain=TRAINING)
def adagrad(node, rate, step, *xs):
    rate = rate / (1 + step * node.get("decay_factor", 0.0))
    rows = []
    for x, g, h in _groups(xs, 3):
        g = g + node.get("norm_coefficient", 0.0) * x
        h = h + g * g
        rows.append((x - rate * g / (ops.sqrt(h) + node.get("epsilon", 1e-6)), h))
    return _by_kind(rows)


@onnx_op("Adam", domain=TRAINING)
def adam(node, rate, step, *xs):
    alpha, beta = node.get("alpha", 0.9), node.get("beta", 0.999)
    rows = []
    for x, g, v, h in _groups(xs, 4):
        g = g + node.get("norm_coefficient", 0.0) * x
        v, h = alpha * v + (1 - alpha) * g, beta * h + (1 - beta) * g * g
        corrected = ops.where(step > 0, rate * ops.sqrt(1 - beta**step) / (1 - alpha**step), rate)
        x = x - corrected * v / (ops.sqrt(h) + node.get("epsilon", 1e-6))
        rows.append(((1 - node.get("norm_coefficient_post", 0.0)) * x, v, h))
    return _by_kind(rows)


@onnx_op("Momentum", domain=TRAINING)
def momentum(node, rate, step, *xs):
    alpha = node["alpha"]
    rows = []
    for x, g, v in _groups(xs, 3):
        g = g + node["norm_coefficient"] * x
        beta = ops.where(step > 0, node["beta"], 1.0)
        v = alpha * v + beta * g
        x = x - rate * (g + alpha * v if node["mode"] == "nesterov" else v)
        rows.append((x, v))
    return _by_kind(rows)
