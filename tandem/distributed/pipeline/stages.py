"""A stage on its ranks: its programs, and how everything that comes in and goes out lies there."""

from __future__ import annotations

import dataclasses

from tandem.distributed.pipeline.cut import Joint
from tandem.distributed.pipeline.places import ONE, Place
from tandem.distributed.pipeline.programs import Programs, levels, programs_of
from tandem.distributed.sharding.layout import Placements
from tandem.graph.ir import Graph, Value


@dataclasses.dataclass
class Stage:
    """joint: of whole tensors. Placements of its values, on the ranks of its place:"""

    joint: Joint
    place: Place
    inputs: dict[Value, Placements]
    outputs: dict[Value, Placements]
    gradients_in: dict[Value, Placements]
    gradients_out: dict[Value, Placements]
    weights: dict[Value, Placements]  # of parameters, and of their gradients after a step
    programs: Programs | None  # None on ranks that are not in its place
    finish: Graph | None = None  # gradients as backward gives them -> as the parameters lie

    @property
    def number(self) -> int:
        return self.joint.number


def whole_stage(joint: Joint, rank: int, mine: bool, recompute: bool) -> Stage:
    """A stage on one rank."""
    programs = None
    if mine:
        outputs, out = len(joint.outputs), len(joint.gradients_out)
        level = levels(joint.graph, outputs, out)
        programs = programs_of(joint.graph, len(joint.gradients_in), outputs, out, level.__getitem__, recompute)
    whole = lambda values: dict.fromkeys(values, ONE)
    return Stage(
        joint, Place((rank,)), whole(joint.inputs), whole(joint.outputs), whole(joint.gradients_in),
        whole(joint.gradients_out), whole(joint.weights), programs,
    )  # fmt: skip
