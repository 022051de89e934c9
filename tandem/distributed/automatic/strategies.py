"""Strategies: the ways to divide an operator over a mesh, from the sharding rules.

Along each mesh axis an operator is replicated, divided by one of its factors, or, where it is linear, computed on summands. A
strategy is a choice for all axes that the rules leave as it is: operands under its placements need no move, and the results
have the placements that it says.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

from tandem.distributed.sharding.factors import choose
from tandem.distributed.sharding.layout import REPLICATE, Grid, Placements
from tandem.distributed.sharding.placements import Partial, Shard
from tandem.distributed.sharding.rules import rule_of
from tandem.graph.ir import Node, Value


class Strategy(NamedTuple):
    inputs: tuple[Placements, ...]
    outputs: tuple[Placements, ...]
    ways: int  # over how many ranks the operator's work is divided


def strategies_of(node: Node, grid: Grid) -> list[Strategy]:
    """All strategies of a node; the first one is replicated."""
    whole = (REPLICATE,) * len(grid.shape)
    rule = rule_of(node, grid, [whole] * len(node.inputs))
    found = [Strategy((whole,) * len(node.inputs), (whole,) * len(node.outputs), 1)]
    if rule is None or node.op.effect:
        return found
    along = [_along(rule, n) for n in grid.shape]
    for choice in itertools.product(*along):
        given = [tuple(option[i] for option in choice) for i in range(len(node.inputs))]
        made = _fixed(node, grid, given)
        if made is not None and made not in found:
            found.append(made)
    return found


def _along(rule, size: int) -> list[list]:
    """Placements of all operands along one mesh axis of this size."""
    count = len(rule.inputs)
    found = [[REPLICATE] * count]
    if size == 1:
        return found
    for factor in dict.fromkeys(f for factors in rule.inputs for f in factors if f is not None):
        found.append([Shard(f.index(factor)) if factor in f else REPLICATE for f in rule.inputs])
    for together in rule.linear:
        found.append([Partial("sum") if i in together else REPLICATE for i in range(count)])
    return found


def _fixed(node: Node, grid: Grid, given: list[Placements]) -> Strategy | None:
    """The strategy with operands under these placements, if the rules leave them."""
    if not all(is_even(v, p, grid) for v, p in zip(node.inputs, given, strict=True)):
        return None
    rule = rule_of(node, grid, given)
    if rule is None:
        return None
    choice = choose(rule, list(node.inputs), given, len(grid.shape))
    if choice.conflicts or list(choice.inputs) != given:
        return None
    if not all(is_even(v, p, grid) for v, p in zip(node.outputs, choice.outputs, strict=True)):
        return None
    ways = 1
    for m, n in enumerate(grid.shape):
        if any(isinstance(p[m], Shard) for p in (*choice.inputs, *choice.outputs)):
            ways *= n
    return Strategy(tuple(choice.inputs), tuple(choice.outputs), ways)


def is_even(value: Value, placements: Placements, grid: Grid) -> bool:
    """Whether all ranks get parts of one size."""
    for d, n in enumerate(value.shape):
        axes = [m for m, p in enumerate(placements) if isinstance(p, Shard) and p.dim == d]
        if axes and (n % math.prod(grid.shape[m] for m in axes) or not n):
            return False
    return True


def placements_of(value: Value, grid: Grid) -> list[Placements]:
    """All ways that an input may lie: replicated first."""
    along = [[REPLICATE, *(Shard(d) for d in range(value.ndim))] if n > 1 else [REPLICATE] for n in grid.shape]
    return [p for p in itertools.product(*along) if is_even(value, p, grid)]
