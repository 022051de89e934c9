"""The passes that every program goes through, in order, between capture and code generation."""

from __future__ import annotations

from tandem.codegen.lower import LOWERING, OPTIONAL
from tandem.errors import SwitchWarning, warn
from tandem.graph.ir import Graph
from tandem.graph.timing import pass_times
from tandem.graph.verify import verify
from tandem.passes.channels_last import channels_last, is_for
from tandem.passes.common_subexpressions import common_subexpressions
from tandem.passes.eliminate_dead import eliminate_dead
from tandem.passes.expand_composites import expand_composites
from tandem.passes.fold_constants import fold_constants
from tandem.passes.fold_conv_affine import fold_conv_affine
from tandem.passes.graph_pass import INSIDE, PASSES
from tandem.passes.merge_matmuls import merge_matmuls
from tandem.passes.prefetch_gathers import prefetch_gathers
from tandem.passes.reassociate_matmul import reassociate_matmul
from tandem.passes.relu_masks import relu_masks
from tandem.passes.share_heads import share_heads
from tandem.passes.simplify import simplify
from tandem.passes.simplify_regions import simplify_regions
from tandem.passes.sink_reshapes import sink_reshapes
from tandem.passes.sum_matmuls import sum_matmuls
from tandem.passes.transpose_matmuls import transpose_matmuls
from tandem.switches import CHECK, PRINT, SKIP

PIPELINE = [
    eliminate_dead,         # first, so that nobody looks at what is not needed
    expand_composites,      # rules are written for primitives
    fold_constants,         # sizes and numbers, which decide whether rules match
    simplify,
    sink_reshapes,          # after simplify, which makes one reshape of several
    share_heads,            # likewise: sums over what was repeated
    relu_masks,             # after simplify, which makes comparisons of what they are
    fold_conv_affine,
    reassociate_matmul,     # after simplify, so that merged transposes do not hide chains
    transpose_matmuls,      # likewise; before others look for what is transposed
    merge_matmuls,          # after reassociation, which may have moved products apart or together
    sum_matmuls,            # likewise: chains of products have their order
    channels_last,          # of whole programs on the CPU; before equal arrangements are made one
    common_subexpressions,  # last: simplifying makes things equal that were written differently
    eliminate_dead,         # what simplifying has left behind
    prefetch_gathers,       # when the order of what is computed is decided
    simplify_regions,       # all of this inside of loops and branches
]  # fmt: skip

INSIDE.extend(run for run in PIPELINE if run not in (channels_last, prefetch_gathers))

# A stage of code generation that PRINT can name besides: what is computed again to save memory (tandem/codegen/recompute.py).
STAGES = ("recompute",)


def run_pipeline(graph: Graph, times: dict[str, float] | None = None, layouts=None) -> Graph:
    """graph after all passes; the input is not changed. `times` takes {pass: seconds}.

    layouts: of the inputs, for a program of the CPU whose inner layouts are ours to choose.
    """
    arrange = layouts is not None and is_for(layouts)
    given, known = graph, set(graph.nodes)
    if CHECK:
        verify(graph, known=known)  # types were inferred when it was built
    passes = [run for run in PIPELINE if run is not channels_last or arrange]
    try:
        with pass_times() as taken:
            for run in passes:
                graph = run(graph, verifies=CHECK >= 2)
        if CHECK and graph is not given:
            verify(graph, "passes", known)
    except Exception:
        if CHECK:
            _name_culprit(given, passes)
        raise
    if times is not None:
        times.update(taken)
    return graph


def _name_culprit(graph: Graph, passes: list):
    """Once more, with the graph verified after each pass: raises for the first one that gives a wrong graph."""
    for run in passes:
        graph = run(graph)


def check_names():
    """Warns of switches that name no pass and no step of lowering: a slip, which would go unnoticed."""
    steps = [step.__name__ for step in LOWERING]
    for switch, others in ((SKIP, OPTIONAL), (PRINT, [*steps, *STAGES])):
        unknown = {name.strip() for name in switch.value.split(",")} - {"", "all", *PASSES, *others}
        if unknown:
            known = ", ".join(dict.fromkeys([run.__name__ for run in PIPELINE] + [*others]))
            needed = ", which nothing can do without" if unknown <= set(steps) else ""
            warn(
                f"{switch} names no pass{' that can be left out' if needed else ''}: {', '.join(sorted(unknown))}{needed}"
                f"\n  fix: passes are {known}",
                SwitchWarning,
            )
