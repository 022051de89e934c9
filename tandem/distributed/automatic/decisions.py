"""What a search decided, as plain lists and numbers: for files, and for ranks that did not search."""

from __future__ import annotations

from tandem.distributed.automatic.choice import Choice, StageChoice
from tandem.distributed.automatic.costs import Costs
from tandem.distributed.automatic.solve import Solution
from tandem.distributed.automatic.step import Step, content_of, stage_step, whole_step
from tandem.distributed.automatic.strategies import Strategy
from tandem.distributed.objects import broadcast_object_list
from tandem.distributed.pipeline.cut import cut
from tandem.distributed.pipeline.places import Place
from tandem.distributed.pipeline.runtime import micro_batch, rows_of, trace_marked
from tandem.distributed.sharding.layout import Grid, Placements
from tandem.distributed.sharding.placements import Partial, Replicate, Shard
from tandem.distributed.topology import Topology
from tandem.distributed.traced import Traced, trace_loss
from tandem.errors import ValueRangeError

FORMAT = 2


def write(choice: Choice) -> dict:
    nodes = [n for n in choice.traced.graph.nodes if not n.op.is_input]
    return {
        "format": FORMAT, "graph": content_of(choice.traced.graph), "micro_batches": choice.micro_batches,
        "schedule": choice.schedule_name, "stage_of": [choice.stage_of.get(n, 0) for n in nodes] if choice.stage_of else None,
        "stages": [_write_stage(s) for s in choice.stages],
    }  # fmt: skip


def _write_stage(s: StageChoice) -> dict:
    graph, found = s.step.graph, s.solution
    strategies = (found.strategies[n] for n in graph.nodes if n in found.strategies)
    return {
        "ranks": list(s.place.ranks), "mesh": list(s.place.shape), "recompute": s.recompute, "graph": s.step.content(),
        "seconds": found.seconds, "bound": found.bound, "optimal": found.optimal,
        "placements": [letters(found.placements[v]) for v in graph.inputs],
        "leaving": {str(i): letters(p) for i, p in found.leaving.items()},
        "strategies": [[list(map(letters, t.inputs)), list(map(letters, t.outputs)), t.ways] for t in strategies],
    }  # fmt: skip


def retrace(written: dict, fn, args) -> Traced:
    """The function as the plan was made for: on a batch, or on a micro-batch."""
    if written["stage_of"] is None:
        return trace_loss("parallelize", fn, args)
    count = written["micro_batches"]
    return trace_marked(fn, micro_batch(args, rows_of("parallelize", args, count), count), op="parallelize")


def read(written: dict, traced: Traced, topology: Topology, state: float, times=None) -> Choice:
    graph = traced.graph
    if written["graph"] != content_of(graph):
        raise ValueError("it is for another function or other shapes")

    def costs(place: Place) -> Costs:
        grid = Grid(place.shape, (0,) * len(place.shape), tuple(range(len(place.shape))))
        return Costs(grid, topology, place.ranks[0], state, times)

    places = [Place(tuple(s["ranks"]), tuple(s["mesh"])) for s in written["stages"]]
    if written["stage_of"] is None:
        step = whole_step(traced)
        solution = _solution(written["stages"][0], step)
        return Choice(traced, [StageChoice(step, places[0], solution, costs(places[0]))])
    nodes = [n for n in graph.nodes if not n.op.is_input]
    stage_of = dict(zip(nodes, written["stage_of"], strict=True))
    stages = []
    for joint, kept, place in zip(
        cut(graph, traced.weights, stage_of, len(places)), written["stages"], places, strict=True
    ):
        step = stage_step(joint, graph, written["micro_batches"])
        solution = _solution(kept, step)
        stages.append(StageChoice(step, place, solution, costs(place), joint, kept["recompute"]))
    return Choice(traced, stages, written["micro_batches"], stage_of, written["schedule"])


def _solution(kept: dict, step: Step) -> Solution:
    if kept["graph"] != step.content():
        raise ValueError("it is for another function or other shapes")
    graph = step.graph
    nodes = [n for n in graph.nodes if not n.op.is_input]
    strategies = {
        n: Strategy(tuple(map(_placements, inputs)), tuple(map(_placements, outputs)), ways)
        for n, (inputs, outputs, ways) in zip(nodes, kept["strategies"], strict=True)
    }
    placements = {v: _placements(p) for v, p in zip(graph.inputs, kept["placements"], strict=True)}
    leaving = {int(i): _placements(p) for i, p in kept["leaving"].items()}
    return Solution(strategies, placements, leaving, kept["seconds"], kept["bound"], kept["optimal"])


def decide_together(groups, coordinate, search) -> dict:
    """What search() gives on the first rank, for all: where time runs out, solvers decide differently.

    groups, coordinate: of this rank along the axes of a mesh
    """
    found, error = None, None
    if not any(coordinate):
        try:
            found = write(search())
        except ValueRangeError as failure:
            found, error = {"failed": failure.rule, "fix": failure.fix}, failure
    for axis, group in enumerate(groups):
        kept = [found]
        broadcast_object_list(kept, group.ranks[0], group)
        found = kept[0] if coordinate[axis] or found is None else found
    if "failed" in found:
        raise error or ValueRangeError("parallelize", found["failed"], fix=found["fix"])
    return found


def letters(placements: Placements) -> str:
    """One for each mesh axis: R, S0, P; Pmax for what is not a sum."""
    return " ".join(map(_letter, placements))


def _letter(p) -> str:
    if isinstance(p, Shard):
        return f"S{p.dim}"
    return "R" if not isinstance(p, Partial) else "P" if p.reduce_op == "sum" else f"P{p.reduce_op}"


def _placements(text: str) -> Placements:
    return tuple(
        Shard(int(t[1:])) if t[0] == "S" else Partial(t[1:] or "sum") if t[0] == "P" else Replicate()
        for t in text.split()
    )
