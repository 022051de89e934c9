"""shard: a graph of whole tensors becomes the graph of one rank, on its parts, with collectives where parts have to meet.

Placements go forward from those of the inputs, node by node, by the rules (rules.py). A composite whose own axes are divided is
written in other operators; what has no rule gets whole operands. An eager call is the smallest graph, and its gradient another one:
both are graphs of whole tensors, so a gradient is exact whatever the placements are.
"""

from __future__ import annotations

from typing import NamedTuple

from tandem.distributed.sharding.factors import Rule, choose
from tandem.distributed.sharding.layout import (
    REPLICATE,
    Grid,
    Placements,
    has_partial,
    replicated,
)
from tandem.distributed.sharding.move import Mover
from tandem.distributed.sharding.rules import rule_of
from tandem.errors import ShardingError
from tandem.graph.ir import Graph, Node, Value, current_builder
from tandem.ops.define import Composite, Movement
from tandem.ops.region import Region, region_graph


class Step(NamedTuple):
    """What happened to a node, for explain()."""

    node: Node
    inputs: list[Placements]
    outputs: list[Placements]
    moved: list[tuple[str, int]]


def as_list(values) -> list[Value]:
    return [values] if isinstance(values, Value) else list(values)


class NeedsReduced(Exception):
    """An operand of the call is partial and has to be reduced. That is done to the tensor itself, so that it happens once."""

    def __init__(self, position: int, placements: Placements):
        self.position, self.placements = position, placements


class Sharder:
    """strict: whether operands that are divided by different factors are an error, as in what the user has called."""

    def __init__(self, grid: Grid, strict: bool):
        self.grid, self.strict = grid, strict
        self.mover = Mover(grid)
        self.steps: list[Step] = []
        self._moved: dict = {}
        self._whole = (REPLICATE,) * len(grid.shape)
        self._given: set[Value] = set()
        self._partial: dict[Value, int] = {}

    def graph(self, graph: Graph, inputs: list[Value], placements: list[Placements]) -> list[tuple[Value, Placements]]:
        """The parts of the graph's outputs, given those of its inputs; made by the current builder."""
        made: dict[Value, tuple[Value, Placements]] = dict(
            zip(graph.inputs, zip(inputs, placements, strict=True), strict=True)
        )
        if not self._given:
            self._given = set(graph.inputs)
            self._partial = {
                v: i for i, (v, p) in enumerate(zip(graph.inputs, placements, strict=True)) if has_partial(p)
            }
        for node in graph.nodes:
            if node.op.is_input:
                continue
            results = self._node(node, [made[v] for v in node.inputs])
            made.update(zip(node.outputs, results, strict=True))
        return [made[v] for v in graph.outputs]

    def move(self, whole: Value, value: Value, old: Placements, new: Placements) -> Value:
        """value, this rank's part of `whole`, placed otherwise; made once for each whole value: parts of several ones may be
        one and the same on some ranks, and all ranks must make the same collectives."""
        if old == new:
            return value
        if whole in self._partial and any(a.is_partial() and not b.is_partial() for a, b in zip(old, new, strict=True)):
            target = tuple(b if a.is_partial() else a for a, b in zip(old, new, strict=True))
            raise NeedsReduced(self._partial[whole], target)
        key = (whole, new)
        if key not in self._moved:
            self._moved[key] = self.mover.move(value, tuple(whole.shape), old, new)
        return self._moved[key]

    def _node(self, node: Node, given: list[tuple[Value, Placements]]) -> list[tuple[Value, Placements]]:
        values, old = [v for v, _ in given], [p for _, p in given]
        if all(replicated(p) for p in old):
            return [(v, self._whole) for v in current_builder().add(node.op, tuple(values)).outputs]
        rule = rule_of(node, self.grid, old)
        made_of = _made_of(node.op)
        if rule is None and made_of is not None:
            inner = region_graph(
                current_builder().graph.symbols, node.op.name, [v.type for v in node.inputs],
                lambda *inputs: as_list(made_of(*inputs)),
            )  # fmt: skip
            return self.graph(inner, values, old)
        if rule is None:
            rule = Rule([(None,) * v.ndim for v in node.inputs], [(None,) * v.ndim for v in node.outputs])
        choice = choose(rule, list(node.inputs), old, len(self.grid.shape))
        if self.strict and choice.conflicts:
            self._refuse(node, old, choice.conflicts[0])
        before = len(self.mover.moved)
        parts = [
            self.move(whole, v, a, b) for v, whole, a, b in zip(values, node.inputs, old, choice.inputs, strict=True)
        ]
        if rule.make is not None and not all(replicated(p) for p in choice.inputs):
            results = as_list(rule.make(parts, choice.inputs, choice.outputs))
        else:
            results = list(current_builder().add(node.op, tuple(parts)).outputs)
        self.steps.append(Step(node, choice.inputs, choice.outputs, self.mover.moved[before:]))
        return list(zip(results, choice.outputs, strict=True))

    def _refuse(self, node: Node, given: list[Placements], conflict):
        first, second = conflict.operands[:2]
        if not all(self._from_user(node.inputs[i]) for i in (first, second)):
            return
        where = f"along mesh axis {conflict.mesh_axis}"
        raise ShardingError(
            node.op.name,
            f"operand {first} {tuple(node.inputs[first].shape)} is {list(given[first])} and operand {second} "
            f"{tuple(node.inputs[second].shape)} is {list(given[second])}: {where} they are divided along axes that do not meet, "
            "and either could be gathered",
            fix="say which: operand.redistribute(placements=[...]) before the call, with Replicate() or the other's placement",
        )

    def _from_user(self, value: Value) -> bool:
        while isinstance(value.node.op, Movement) or value.node.op.name == "cast":
            value = value.node.inputs[0]
        return value in self._given


def _made_of(op):
    """What builds an operator without a rule from others, for which there are rules."""
    if isinstance(op, Composite):
        return op.expand
    return op.composed if isinstance(op, Region) and not op.directs else None
