"""A graph on its way to a schedule, and @lowering_step: what every step on that way has in common.

A step is a function of a Lowering, which it changes. Like a pass it is known by its name:

TANDEM_PRINT=fuse            prints what there is after it: the graph, groups of what shares a kernel, or steps of the schedule
TANDEM_SKIP=epilogues        leaves it out, if it is optional
compiled.explain()           says how long it took
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

from tandem import _runtime
from tandem.codegen.buffer import Layout
from tandem.codegen.target import Target
from tandem.graph.ir import Graph, Value
from tandem.graph.timing import note_time
from tandem.switches import PRINT, SKIP


class Lowering:
    """graph, saved, on_host: what is left to lower, as steps rewrite it; made: what stands for values of the graph that was given.

    fusion: which values share a kernel, once `fuse` has decided it; written: mutations that kernels make in place
    lower_part: what lowers a graph inside of a region
    steps, copies: of the schedule, once they are made; joining: steps that may become epilogues -> their groups
    The options are those of `lower`.
    """

    def __init__(self, graph: Graph, layouts: list[Layout | None], saved: list[Value], target: Target, *, inside=None,
                 exact_views=False, in_pieces=False, body=False, epilogues=False, on_host=frozenset()):  # fmt: skip
        self.graph = graph
        self.layouts = layouts
        self.saved = list(saved)
        self.target = target
        self.inside = inside
        self.exact_views = exact_views
        self.body = body
        self.on_host = set(on_host)
        # An operator that is traced for a program is lowered on the way, which is not what switches ask to see.
        self.prints = bool(PRINT) and (in_pieces or epilogues or body or not _runtime.capturing())
        self.waits = any(node.control for node in graph.nodes)
        # nothing is put together across what somebody waits for
        self.in_pieces = in_pieces and target.starts_early and not self.waits
        self.whole = epilogues  # a whole program
        self.epilogues = epilogues and target.joins_products
        self.made: dict[Value, Value] = {}
        self.fusion = None
        self.written: set[int] = set()
        self.lower_part = None
        self.steps: list = []
        self.copies: list = []
        self.joining: dict = {}

    def replace(self, made: dict[Value, Value]):
        """The graph was built again: made[v] stands for v."""
        if self.made:
            self.made = {old: made[new] for old, new in self.made.items() if new in made}
        else:
            self.made = made
        self.saved = [made[v] for v in self.saved]
        self.on_host = {made[v] for v in self.on_host}

    def buffers(self) -> dict:
        """Where each value of the graph that was given lies, of those in memory."""
        fusion = self.fusion
        found = {
            value: buffer for value, buffer in fusion.buffer_of.items()
            if value not in fusion.computes or fusion.computes[value].stored
        }  # fmt: skip
        return {old: found[new] for old, new in self.made.items() if new in found} if self.made else found

    def __str__(self):
        if self.steps:
            return "\n".join(_named(repr(s), getattr(s, "nodes", None) or [s.node]) for s in self.steps)
        if self.fusion is not None:
            groups = self.fusion.groups
            return "\n".join(_named(f"<{g.kind}>", [m.value.node for m in g.members] or [g.node]) for g in groups)
        return str(self.graph)

    def __len__(self):
        return len(self.steps or (self.fusion.groups if self.fusion is not None else self.graph.nodes))

    @property
    def unit(self) -> str:
        return "steps" if self.steps else "groups" if self.fusion is not None else "nodes"


def _named(text: str, nodes: list) -> str:
    return f"{text}   # {', '.join(dict.fromkeys(n.op.name for n in nodes))}"


def lowering_step(fn: Callable[[Lowering], None] | None = None, *, optional: bool = True):
    """Makes a function that changes a Lowering a step, known by the function's name; optional: whether it can be left out."""
    if fn is None:
        return functools.partial(lowering_step, optional=optional)
    name = fn.__name__

    @functools.wraps(fn)
    def run(lowering: Lowering):
        if optional and SKIP and name in SKIP:
            return
        before = (len(lowering), lowering.unit, str(lowering)) if lowering.prints and name in PRINT else None
        started = time.perf_counter()
        fn(lowering)
        seconds = time.perf_counter() - started
        note_time(name, seconds)
        if before is not None:
            count, unit, text = before
            after = str(lowering)
            changed = f"-> {len(lowering)} {lowering.unit}, {seconds * 1e3:.1f} ms\n{after}"
            print(f"== {name}: {count} {unit} {changed if after != text else 'stay as they are'}")

    run.optional = optional
    return run
