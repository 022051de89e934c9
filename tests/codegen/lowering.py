"""A graph lowered as far as a step, to see what that step does."""

from __future__ import annotations

from tandem.codegen.cpu.target import CPU
from tandem.codegen.lower import LOWERING
from tandem.codegen.lowering import Lowering
from tests.codegen.run_schedule import build


def lowered(function, arrays, upto: str, *, skip=(), mutate=None, target=CPU, **options) -> Lowering:
    """The state after the step `upto`, but for those in `skip`."""
    trace = build(function, arrays, mutate)
    lowering = Lowering(trace.graph, trace.layouts, [], target, **options)
    for step in LOWERING:
        if step.__name__ not in skip:
            step(lowering)
        if step.__name__ == upto:
            return lowering
    raise ValueError(f"there is no step {upto}")


def names(lowering: Lowering) -> list[str]:
    return [node.op.name for node in lowering.graph.nodes if node.op.name != "input"]
