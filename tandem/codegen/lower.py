"""lower: a graph of primitives becomes kernels and library calls over buffers, in named steps."""

from __future__ import annotations

import functools

from tandem.codegen.buffer import Layout
from tandem.codegen.concat import write_into_concats
from tandem.codegen.cpu.target import CPU
from tandem.codegen.epilogues import epilogues
from tandem.codegen.fuse import fuse
from tandem.codegen.join_products import join_products
from tandem.codegen.lowering import Lowering
from tandem.codegen.mutations import copy_mutations, write_in_place
from tandem.codegen.order import failures_first
from tandem.codegen.overlap import overlap_collectives
from tandem.codegen.overwrite import overwrite_last_operands
from tandem.codegen.parts import lower_parts
from tandem.codegen.rules import expand_operators, extend_calls, save_traffic
from tandem.codegen.schedule import Schedule, Unfinished
from tandem.codegen.steps import batch_launches, make_steps
from tandem.codegen.target import Target
from tandem.codegen.updates import join_updates
from tandem.devices import DEVICES
from tandem.graph.ir import Graph, Value
from tandem.placement.where import spans_devices

LOWERING = [
    extend_calls,             # first, while operators are what users wrote
    expand_operators,
    save_traffic,             # of what is left then
    fuse,                     # what gets memory, and what shares a kernel
    write_in_place,
    copy_mutations,           # the rest of what is written
    write_into_concats,       # before results take places that these parts would have had
    overwrite_last_operands,
    make_steps,               # loop nests and library calls
    epilogues,
    join_updates,             # of averaged gradients
    join_products,            # that are gradients to be averaged
    batch_launches,
    failures_first,           # behind those: others keep what must precede what
    overlap_collectives,      # and this keeps what may fail before what has an effect
]  # fmt: skip
OPTIONAL = [step.__name__ for step in LOWERING if step.optional]  # those that TANDEM_SKIP may name


def lower(
    graph: Graph,
    layouts: list[Layout | None],
    saved: list[Value] = (),
    inside=None,
    target: Target = CPU,
    exact_views: bool = False,
    in_pieces: bool = False,
    body: bool = False,
    epilogues: bool = False,
    on_host=frozenset(),
) -> Schedule:
    """Steps that compute graph's outputs, saved values and mutations, for all sizes that satisfy the graph's guards.

    inside: what is done to the graphs inside regions first, if that did not happen yet.
    target: what the steps are for (target.py).
    exact_views: whether an output that only rearranges an input must be a view wherever strides allow it, as it may be written to.
    in_pieces: whether the program may begin before all is known, so that what writes inputs comes last (Note [Pieces] in
        src/replay/pieces.h), where the target does so.
    body: whether it is inside of a loop or branch, whose results are stored like what is written, and are nobody's state.
    epilogues: whether kernels may run on blocks of products (epilogues.py), where the target does so: for whole programs.
    on_host: inputs that are Python numbers or single elements in host memory. On a device their values come with the launch.
    """
    lowering = Lowering(
        graph, layouts, saved, target, inside=inside, exact_views=exact_views, in_pieces=in_pieces, body=body,
        epilogues=epilogues, on_host=on_host,
    )  # fmt: skip
    lowering.lower_part = functools.partial(_lower_body, target=target, epilogues=epilogues)
    for step in LOWERING:
        step(lowering)
    return Schedule(lowering.steps, lowering.buffers())


def place(graph: Graph, layouts: list[Layout | None], saved, target: Target, exact_views: bool, on_host) -> Schedule:
    """Where the values of an operator's graph lie: an Unfinished schedule, as what is captured runs as part of a program. A whole
    one where something is checked, which happens as soon as an operator is called (Note [Early checks] in src/capture/capture.h).
    """
    lowering = Lowering(graph, layouts, saved, target, exact_views=exact_views, on_host=on_host)
    first = LOWERING.index(make_steps)
    for step in LOWERING[:first]:
        step(lowering)

    def finish() -> Schedule:
        for step in LOWERING[first:]:
            step(lowering)
        return Schedule(lowering.steps, lowering.buffers())

    if any(node.op.stays or node.op.effect for node in lowering.graph.nodes):
        return finish()
    return Unfinished(lowering.buffers(), finish)


def _lower_body(
    graph: Graph, layouts: list[Layout | None], target: Target, epilogues: bool, on_host=frozenset()
) -> Schedule:
    """The graph of a region: on the region's device, or on several."""
    device = str(DEVICES[target.number])
    if not spans_devices(graph, device):
        return lower(graph, layouts, target=target, body=True, epilogues=epilogues, on_host=on_host)
    devices = [None if v in on_host else device for v in graph.inputs]
    return lower_parts(functools.partial(lower, body=True), graph, layouts, devices, device)
