"""Target: what steps are made for, and everything that lowering asks about it.

A target says what is cheap there (`costs`), which operators are written in others (`rules`), how groups become kernels (`nests`),
what a library call becomes (`library_steps`), and which of lowering's liberties it takes. Lowering itself never asks which target
it has.
"""

from __future__ import annotations

import contextlib

from tandem.codegen import buffer as memory
from tandem.graph.ir import Graph, Value


class Target:
    """The answers that most targets give; each says where its own differ."""

    rules = None  # RuleTable: how operators are written in others (rules.py)
    costs = None  # CpuCosts or CudaCosts: what decisions weigh (costs.py)
    kind = ""  # "cpu", "cuda": where it runs, for operators whose routine not every kind has
    number = 0  # of the device, as the runtime counts them

    # -- what it has
    has_own_memory = False  # single elements of the host then come with a launch
    renders_philox = False  # whether its renderer writes random bits, rather than the kernel round by round
    approximates = False  # has instructions for 2^x and quotients that are good to a few last bits (ScalarBuilder)

    sums_in_blocks = False  # whether its renderer knows Flush (Note [Sums in blocks] in nest.py)

    # -- liberties that lowering takes
    starts_early = False  # whether programs begin in pieces, before all is known (Note [Pieces] in src/replay/pieces.h)
    awaits_collectives = False  # whether programs wait for collectives by steps of their own (overlap.py)
    joins_products = False  # whether kernels may run on blocks of products (epilogues.py)
    joins_concats = False  # whether operands of concatenations are computed in their place (concat.py)
    fails_first = False  # whether steps that may fail come before what is written (order.py)
    guards_writes = False  # whether steps that fail are noticed late, so that kernels themselves must not write then
    overwriting = "rows"  # the groups besides elementwise ones whose results may take an operand's place (overwrite.py)
    writes_columns = False  # whether what follows a reduction of columns may be written over what it reads
    sums_rows_on = False  # whether a kernel over rows goes on with what reads them again (Fusion._find_rows)
    separates_units = False  # whether kernels of reductions read no large tensors that lie along different axes
    keeps_runs = False  # whether costly values are not computed in the short innermost loops of others
    keeps_derivatives = False  # whether a derivative is kept in place of what it is computed from (kept.py)
    keeps_narrow = False  # whether the 16-bit form of a number is kept in place of a wider one
    keeps_along = False  # whether kernels of reductions keep what follows from their results
    arranges = False  # whether passes choose how images lie in memory (channels_last)
    recomputes = False  # whether programs keep within a memory budget (recompute.py)
    picks_at_once = False  # whether few elements of something large are picked as soon as it is there
    places_first = False  # whether captured operators get steps only if they run by themselves (Note [Unwritten plans])

    def is_cheap(self, kept, value: Value, reads: int) -> bool:
        """Whether computing value again costs less than keeping it (kept.py)."""
        raise NotImplementedError

    def nests(self) -> dict:
        """What makes a step of a group, by the kind of the group, and "copy"."""
        raise NotImplementedError

    def repeat_part(self, op, layouts, resolve):
        """A loop over single elements as one kernel."""
        raise NotImplementedError

    # -- memory

    def allocate(self, value: Value, shape: tuple, order: tuple, users: dict) -> memory.Buffer:
        """Memory for a value inside the program."""
        return memory.allocate(value.dtype, shape, order)

    def output_strides(self, node, buffers) -> tuple | None:
        """How the result of a library call lies, where the operator leaves that open."""
        return None

    # -- steps

    def guard(self, steps: list):
        """Has steps that write what existed before the program write nothing once a check has failed."""

    def sums_across(self, group, reduced: frozenset, dtype) -> bool:
        """Whether a kernel over rows can also sum across them."""
        return False

    def image_axes(self, graph) -> int:
        """Of tensors with so many axes or more, what is computed of channels-last ones and others is channels-last; 0: of none."""
        return 0

    def reads_across(self, compute, kept: tuple, kind: str) -> bool:
        """Whether a reduction of rows that lie in memory takes many short ones at a time, one element of each after the other."""
        return False

    def reduces_alone(self, count) -> bool:
        """Whether so many elements are one row, which is reduced with what follows it, rather than parts for many."""
        return False

    def rows_at_once(self, group) -> int:
        """How many rows a kernel that makes passes over rows takes side by side."""
        return 1

    def library_steps(self, fusion, step) -> list:
        """What a library call becomes."""
        return [step]

    def finish(self, steps: list) -> list:
        """The steps of a whole schedule, put together where that saves launches."""
        return steps

    # -- compilation

    def source_of(self, kernel) -> str:
        """The kernel as its renderer writes it."""
        raise NotImplementedError

    def compiling(self, is_large: bool, kinds: int):
        """While inside, a program is made whose kernels others may compile as they become known; kinds: of different operators."""
        return contextlib.nullcontext()

    def begin(self, steps: list, alone: bool = False):
        """Has steps of a program compiled while others are still being made; `alone`: only those that become no part of others."""

    def begin_ahead(self, graph: Graph):
        """An operator that is new is traced for a program: has ready, while that goes on, what its compilation will need."""
