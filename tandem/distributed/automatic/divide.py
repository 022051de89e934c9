"""The graph of one rank, from a graph of whole tensors and a strategy for each of its operators."""

from __future__ import annotations

import dataclasses

from tandem import _runtime
from tandem.distributed.automatic.solve import Solution
from tandem.distributed.automatic.step import FREE, WHOLE, Step
from tandem.distributed.automatic.strategies import Strategy
from tandem.distributed.pipeline.cut import Joint
from tandem.distributed.pipeline.places import Place
from tandem.distributed.pipeline.programs import levels, programs_of
from tandem.distributed.pipeline.stages import Stage
from tandem.distributed.sharding.layout import REPLICATE, Grid, Placements
from tandem.distributed.sharding.propagate import Sharder
from tandem.graph.ir import Builder, Graph, Node, Type, current_builder
from tandem.ops.define import add_input


class PlannedSharder(Sharder):
    """The pass that divides a graph, by strategies that are given instead of those that follow from the operands."""

    def __init__(self, grid: Grid, strategies: dict[Node, Strategy]):
        super().__init__(grid, strict=False)
        self.strategies = strategies
        self.moves: dict[Node, list[tuple[str, int]]] = {}  # what bringing operands to their places takes
        self.origins: dict[Node, list[Node]] = {}  # the operators of the whole graph that a node was made for
        self._at: Node | None = None
        self._made_for: dict = {}  # the nodes of each move

    def move(self, whole, value, old: Placements, new: Placements):
        nodes = current_builder().graph.nodes
        first, known = len(nodes), self._made_for.get((whole, new))
        made = super().move(whole, value, old, new)
        if known is None:
            known = self._made_for[whole, new] = nodes[first:]
        for n in known:
            self.origins.setdefault(n, []).append(self._at)
        return made

    def _node(self, node: Node, given):
        chosen = self.strategies.get(node)
        if chosen is None:  # of an operator that is written in others
            return super()._node(node, given)
        self._at = node
        before, nodes = len(self.mover.moved), current_builder().graph.nodes
        first = len(nodes)
        placed = [
            (self.move(whole, v, old, new), new)
            for (v, old), whole, new in zip(given, node.inputs, chosen.inputs, strict=True)
        ]
        self.moves[node] = self.mover.moved[before:]
        results = super()._node(node, placed)
        for n in nodes[first:]:
            self.origins.setdefault(n, []).append(node)
        return results

    def level(self, levels: dict[Node, int]):
        """The level of a node of the rank's graph: that of the first operator that needs it."""
        return lambda n: min((levels[o] for o in self.origins.get(n, ())), default=0)

    def move_output(self, value, v, old: Placements, new: Placements):
        self._at = value.node
        return self.move(value, v, old, new)


@dataclasses.dataclass
class Divided:
    """graph: of one rank; outputs: how they lie there; finish: what is done once after all micro-batches, gradients as they
    come out -> as weights lie; moved: (collective, bytes) of each run, and once."""

    graph: Graph
    outputs: list[Placements]
    sharder: PlannedSharder
    finish: Graph | None
    moved: list[tuple[str, int]]
    moved_once: list[tuple[str, int]]


def divide(step: Step, solution: Solution, grid: Grid) -> Divided:
    """With several micro-batches, gradients stay as they come out, and `finish` brings them to their weights' placements."""
    whole, later = (REPLICATE,) * len(grid.shape), step.micro_batches > 1
    sharder = PlannedSharder(grid, solution.strategies)
    graph = Graph(name=step.graph.name or "parallel_step")
    _runtime.enter_trace()
    try:
        with Builder(graph) as builder:
            lies = [solution.placements[v] for v in step.graph.inputs]
            inputs = [
                add_input(builder, Type(v.dtype, grid.local_shape(v.shape, p)))
                for v, p in zip(step.graph.inputs, lies, strict=True)
            ]
            results = sharder.graph(step.graph, inputs, lies)
            outputs = []
            for i, ((_, old), want) in enumerate(zip(results, step.wants, strict=True)):
                if want == WHOLE:
                    outputs.append(whole)
                elif want == FREE:
                    outputs.append(solution.leaving[i])
                else:
                    outputs.append(old if later else lies[want])
            graph.outputs = [
                sharder.move_output(value, v, old, new)
                for (v, old), value, new in zip(results, step.graph.outputs, outputs, strict=True)
            ]
    finally:
        _runtime.exit_trace()
    moved, finish, moved_once = list(sharder.mover.moved), None, []
    if later:
        wanted = [(i, lies[w]) for i, w in enumerate(step.wants) if w not in (WHOLE, FREE)]
        finish, moved_once = _finish(step, grid, [(i, outputs[i], p) for i, p in wanted])
    return Divided(graph, outputs, sharder, finish, moved, moved_once)


def _finish(step: Step, grid: Grid, gradients: list) -> tuple[Graph | None, list]:
    if all(old == new for _, old, new in gradients):
        return None, []
    sharder = Sharder(grid, strict=False)
    graph = Graph(name="gradients")
    _runtime.enter_trace()
    try:
        with Builder(graph) as builder:
            for i, old, new in gradients:
                v = step.graph.outputs[i]
                local = add_input(builder, Type(v.dtype, grid.local_shape(v.shape, old)))
                graph.outputs.append(sharder.mover.move(local, tuple(v.shape), old, new))
    finally:
        _runtime.exit_trace()
    return graph, list(sharder.mover.moved)


def divided_stage(
    joint: Joint, step: Step, solution: Solution, place: Place, rank: int, tokens: tuple[int, ...], recompute: bool
) -> tuple[Stage, Divided]:
    """A stage on the ranks of a place, with the programs of one of them."""
    inside = rank in place.ranks
    coordinate = place.coordinate(rank if inside else place.ranks[0])
    made = divide(step, solution, Grid(place.shape, coordinate, tokens))
    count, out, grads = len(joint.inputs), len(joint.outputs), len(joint.gradients_out)
    lies = [solution.placements[v] for v in step.graph.inputs]
    programs = None
    if inside:
        level = levels(step.graph, out, grads)
        programs = programs_of(made.graph, len(joint.gradients_in), out, grads, made.sharder.level(level), recompute)
    of_inputs = dict(zip(joint.inputs, lies, strict=False))
    return Stage(
        joint, place, of_inputs, dict(zip(joint.outputs, made.outputs, strict=False)),
        dict(zip(joint.gradients_in, lies[count:], strict=True)),
        dict(zip(joint.gradients_out, made.outputs[out:], strict=False)),
        {v: of_inputs[v] for v in joint.weights}, programs, made.finish,
    ), made  # fmt: skip
