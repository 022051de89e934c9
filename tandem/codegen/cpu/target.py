"""The CPU as what steps are made for."""

from __future__ import annotations

import functools
import math

from tandem import dtypes
from tandem.codegen.columns import columns
from tandem.codegen.compile import text_of
from tandem.codegen.costs import CpuCosts, few_reads, second_level_cache
from tandem.codegen.cpu.compose import MANY, RULES, at_most
from tandem.codegen.elementwise import copy, elementwise
from tandem.codegen.nest import is_positional
from tandem.codegen.repeat import repeat_part
from tandem.codegen.rows import rows
from tandem.codegen.schedule import kernels_in
from tandem.codegen.target import Target
from tandem.codegen.workers import compiling_ahead, note
from tandem.graph.ir import Value
from tandem.graph.symbolic import hint, product
from tandem.machine.tune import open_choices, prepare_products
from tandem.ops.matmul import Matmul

_NESTS = {"elementwise": elementwise, "rows": rows, "columns": columns, "copy": copy}

# Elements of a row up to which rows are read side by side, one element of each after the other: each alone would fill no vector, or
# little of what is added up in one.
SHORT = {"argmax": 16, "argmin": 16, "max": 4, "min": 4, "sum": 4}
WIDE = 16  # rows side by side
SIDE_ROW = 256  # elements of a row up to which several are read side by side, each along memory: longer ones pay for themselves
# (rows, cost units an element up to which so many are taken): each of them is a copy of the loop's body.
SIDE_BY_SIDE = ((8, 24), (4, 48))
FEW_MASKS = 4  # rows whose accumulators are bits: registers of masks are few


class CpuTarget(Target):
    kind = "cpu"
    rules = RULES
    renders_philox = True
    sums_in_blocks = True
    awaits_collectives = True
    joins_products = True
    joins_concats = True
    fails_first = True
    overwriting = "columns"
    separates_units = True
    keeps_runs = True
    keeps_derivatives = True
    keeps_along = True
    arranges = True
    recomputes = True
    places_first = True

    @functools.cached_property
    def costs(self) -> CpuCosts:
        return CpuCosts(second_level_cache())

    def is_cheap(self, kept, value: Value, reads: int) -> bool:
        return few_reads(kept, value, reads)

    def nests(self) -> dict:
        return _NESTS

    def repeat_part(self, op, layouts, resolve):
        return repeat_part(op, layouts, resolve)

    def image_axes(self, graph) -> int:
        # Results of other operators lie row-major, as callers expect who look at them in another shape.
        convolves = graph.name.endswith("_backward") or any(n.op.name.startswith("conv_") for n in graph.nodes)
        return 3 if convolves else 0

    def reads_across(self, compute, kept: tuple, kind: str) -> bool:
        if kind not in SHORT or not kept or compute.unit not in compute.reduced:
            return False
        sizes = dict(zip(compute.axes, compute.domain))
        if hint(sizes[kept[-1]]) < WIDE:
            return False
        return at_most(product(sizes[a] for a in compute.reduced), SHORT[kind], product(sizes[a] for a in kept))

    def rows_at_once(self, group) -> int:
        kept = group.kept
        if (
            not kept
            or group.parts_of is not None
            or any(m.role == "partial" or is_positional(m) for m in group.members)
        ):
            return 1
        several = next((n for n, cost in SIDE_BY_SIDE if group.cost <= cost), 1)
        if any(m.role == "reduce" and m.value.dtype is dtypes.bool_ for m in group.members):
            several = min(several, FEW_MASKS)
        rows = product(group.domain[a] for a in kept)
        length = product(group.domain[a] for a in group.reduced)
        if several == 1 or hint(rows) < several or hint(length) * hint(rows) < MANY:
            return 1
        # Asked of long rows, too: short ones that come later get a plan of their own, of which most kernels are the same.
        return several if length <= SIDE_ROW else 1

    def library_steps(self, fusion, step) -> list:
        open_choices()
        if isinstance(step.node.op, Matmul) and step.outputs[0].dtype is dtypes.float32:
            _prepare_product(*step.inputs[:2])
        return [step]

    def source_of(self, kernel) -> str:
        return text_of(kernel)

    def compiling(self, is_large: bool, kinds: int):
        return compiling_ahead(is_large)

    def begin(self, steps: list, alone: bool = False):
        for step in steps:
            for kernel in kernels_in(step):
                note(kernel)


def _prepare_product(a, b):
    """Has measured who multiplies matrices like these, of the sizes that are known now."""
    batch = math.prod(map(hint, a.shape[:-2]))
    m, k, n = hint(a.shape[-2]), hint(a.shape[-1]), hint(b.shape[-1])
    if batch > 1 and all(hint(s) == 0 for s in b.strides[:-2]):  # one taller product
        batch, m = 1, batch * m
    strides = [(hint(x.strides[-2]), hint(x.strides[-1])) for x in (a, b)]
    prepare_products(batch, m, n, k, *strides)


CPU = CpuTarget()
