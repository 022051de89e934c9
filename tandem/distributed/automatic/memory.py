"""What a rank needs for a plan, from the memory planner: programs are lowered as for running, and their peaks are added up."""

from __future__ import annotations

import math

from tandem.codegen.peak import memory_of
from tandem.codegen.targets import target_of
from tandem.distributed.automatic.choice import Choice, StageChoice
from tandem.distributed.automatic.divide import divide, divided_stage
from tandem.graph.ir import Graph
from tandem.program.driver import schedule_for


def peak_of(graph: Graph) -> int:
    """Bytes that a program allocates at most, results included and inputs not."""
    return memory_of(*schedule_for(graph, target_of(0)))["peak"]


def stage_memory(choice: Choice, number: int) -> float:
    """Bytes of a rank of a stage: its inputs, weights, gradients, the optimiser's state, what is kept of micro-batches, and the
    peak of a program."""
    return sum(_held_and_peak(choice, number))


def _held_and_peak(choice: Choice, number: int) -> tuple[float, float]:
    s = choice.stages[number]
    weights = _bytes(s, s.step.weights)
    # Gradients of several micro-batches are added up beside those that come out; a batch's own inputs are there anyway.
    fixed = (1 + s.costs.state) * weights + (weights if choice.micro_batches > 1 else 0)
    fixed += _bytes(
        s, [i for i in range(len(s.step.graph.inputs)) if i not in s.step.weights and i not in s.step.arriving]
    )
    if s.joint is None:
        return fixed, peak_of(divide(s.step, s.solution, s.costs.grid).graph)
    rank, tokens = s.place.ranks[0], tuple(range(len(s.place.shape)))
    stage, _ = divided_stage(s.joint, s.step, s.solution, s.place, rank, tokens, s.recompute)
    programs = stage.programs
    own = set(programs.forward.inputs)
    kept = sum(_size(v) for v in programs.forward.outputs[len(s.joint.outputs) :] if v not in own)
    kept += _bytes(s, s.step.arriving) if s.step.arriving else 0
    split = choice.schedule.splits
    backward = [programs.for_inputs, programs.for_weights] if split else [programs.backward]
    peaks = [peak_of(p) for p in (programs.forward, *backward) if p.outputs]
    return fixed + choice.kept(number) * kept, max(peaks)


def plan_memory(choice: Choice) -> float:
    """Of the fullest rank."""
    found = [_held_and_peak(choice, i) for i in range(len(choice.stages))]
    return max(sum(found[i][0] for i in row) + max(found[i][1] for i in row) for row in choice.rows)


def _bytes(s: StageChoice, positions) -> int:
    inputs = s.step.graph.inputs
    return sum(s.costs.local_bytes(inputs[i].type, s.solution.placements[inputs[i]]) for i in positions)


def _size(v) -> int:
    return math.prod(v.shape) * v.dtype.itemsize
