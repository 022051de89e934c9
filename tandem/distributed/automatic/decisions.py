"""What a solver decided, as plain lists and numbers: for files, and for ranks that did not solve."""

from __future__ import annotations

import hashlib

from tandem.distributed.automatic.solve import Solution
from tandem.distributed.automatic.step import Step
from tandem.distributed.automatic.strategies import Strategy
from tandem.distributed.objects import broadcast_object_list
from tandem.distributed.sharding.layout import Placements
from tandem.distributed.sharding.mesh import Mesh
from tandem.distributed.sharding.placements import Partial, Replicate, Shard
from tandem.errors import ValueRangeError

FORMAT = 1


def write(step: Step, solution: Solution) -> dict:
    graph = step.graph
    strategies = (solution.strategies[n] for n in graph.nodes if n in solution.strategies)
    return {
        "format": FORMAT, "graph": digest(step), "seconds": solution.seconds, "bound": solution.bound, "optimal": solution.optimal,
        "placements": [letters(solution.placements[v]) for v in graph.inputs],
        "strategies": [[list(map(letters, s.inputs)), list(map(letters, s.outputs)), s.ways] for s in strategies],
    }  # fmt: skip


def read(step: Step, written: dict) -> Solution:
    graph = step.graph
    nodes = [n for n in graph.nodes if n.op.name != "input"]
    strategies = {
        n: Strategy(tuple(map(_placements, inputs)), tuple(map(_placements, outputs)), ways)
        for n, (inputs, outputs, ways) in zip(nodes, written["strategies"], strict=True)
    }
    placements = {v: _placements(p) for v, p in zip(graph.inputs, written["placements"], strict=True)}
    return Solution(strategies, placements, written["seconds"], written["bound"], written["optimal"])


def decide_together(step: Step, mesh: Mesh, solve) -> Solution:
    """What solve() gives on the first rank of a mesh, for all: where time runs out, solvers decide differently."""
    found, error = None, None
    if not any(mesh.coordinate):
        try:
            found = write(step, solve())
        except ValueRangeError as failure:
            found, error = {"failed": failure.rule, "fix": failure.fix}, failure
    for axis, group in enumerate(mesh.groups):
        kept = [found]
        broadcast_object_list(kept, group.ranks[0], group)
        found = kept[0] if mesh.coordinate[axis] or found is None else found
    if "failed" in found:
        raise error or ValueRangeError("parallelize", found["failed"], fix=found["fix"])
    if found["graph"] != digest(step):
        raise ValueRangeError(
            "parallelize", "the function is not the same on all ranks", fix="make models and shapes equal on all ranks"
        )
    return read(step, found)


def digest(step: Step) -> str:
    return hashlib.blake2b(step.graph.to_json().encode(), digest_size=16).hexdigest()


def letters(placements: Placements) -> str:
    """One for each mesh axis: R, S0, P."""
    return " ".join(f"S{p.dim}" if isinstance(p, Shard) else "P" if isinstance(p, Partial) else "R" for p in placements)


def _placements(text: str) -> Placements:
    return tuple(
        Shard(int(t[1:])) if t[0] == "S" else Partial("sum") if t == "P" else Replicate() for t in text.split()
    )
