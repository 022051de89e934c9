"""The CPU as what steps are made for."""

from __future__ import annotations

import functools
import math

from tandem import dtypes
from tandem.codegen.columns import columns
from tandem.codegen.compile import text_of
from tandem.codegen.costs import CpuCosts, few_reads, second_level_cache
from tandem.codegen.cpu.compose import RULES, at_most
from tandem.codegen.elementwise import copy, elementwise
from tandem.codegen.repeat import repeat_part
from tandem.codegen.rows import rows
from tandem.codegen.schedule import kernels_in
from tandem.codegen.target import Target
from tandem.codegen.workers import note
from tandem.graph.ir import Value
from tandem.graph.symbolic import hint, product
from tandem.machine.tune import prepare_convolutions, prepare_products
from tandem.ops.matmul import Matmul

_NESTS = {"elementwise": elementwise, "rows": rows, "columns": columns, "copy": copy}

# Elements of a row up to which rows are read side by side, one element of each after the other: each alone would fill no vector, or
# little of what is added up in one.
SHORT = {"argmax": 16, "argmin": 16, "max": 16, "min": 16, "sum": 8}
WIDE = 16  # rows side by side


class CpuTarget(Target):
    kind = "cpu"
    rules = RULES
    renders_philox = True
    sums_in_blocks = True
    joins_products = True
    joins_concats = True
    fails_first = True
    overwriting = "columns"
    separates_units = True
    keeps_runs = True
    keeps_derivatives = True
    arranges = True
    recomputes = True

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

    def library_steps(self, fusion, step) -> list:
        if isinstance(step.node.op, Matmul) and step.outputs[0].dtype is dtypes.float32:
            _prepare_product(*step.inputs[:2])
        elif step.node.op.name.startswith("conv_"):
            prepare_convolutions()
        return [step]

    def source_of(self, kernel) -> str:
        return text_of(kernel)

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
