"""What is slow about a kernel by its text alone, whatever the machine: counted, not timed.

`findings(step)` of a KernelStep names what costs more than the same work in kernels of its own would:

    gathers   in an innermost loop of many elements, a tensor is read with steps, along another axis than it lies
    alone     much work that is one item, so that one thread has it all
    short     costly expressions in an innermost loop that is shorter than a vector
"""

from __future__ import annotations

import math
from collections import Counter

from tandem.codegen.expr import topological
from tandem.codegen.loops import Accumulate, Loop, Store, expression_cost
from tandem.codegen.schedule import KernelStep
from tandem.graph.symbolic import hint

MUCH = 1 << 16  # elements
COSTLY = 64  # cost units of an element
VECTOR = 16


def findings_of(compiled) -> Counter:
    """{"kernel: what is slow about it": how many} of the latest program of a compiled function."""
    found: Counter = Counter()
    for step in compiled.graph().schedule.steps:
        if isinstance(step, KernelStep):
            found.update(f"{step.kernel.name}: {what}" for what in findings(step))
    return found


def findings(step) -> list[str]:
    sizes = [math.prod(map(hint, b.shape)) for b in step.buffers]
    elements = max(sizes, default=0)
    found = []
    if elements >= MUCH and hint(step.extent) < 2:
        found.append("alone")
    numbers = [hint(d) for d in step.ints]
    for loop in _vector_loops(step.kernel.body):
        values = [s.value for s in loop.body if isinstance(s, (Store, Accumulate))]
        offsets = [s.offset for s in loop.body if isinstance(s, Store)]
        if any(_gathers(e, loop.var, step.kernel, sizes) for e in topological([*values, *offsets])):
            found.append("gathers")
        end = _number(loop.end, numbers)
        if elements >= MUCH and end is not None and end < VECTOR and expression_cost(values) > COSTLY:
            found.append("short")
    return sorted(set(found))


def _vector_loops(body: list):
    for s in body:
        if isinstance(s, Loop):
            if s.mode == "vector":
                yield s
            yield from _vector_loops(s.body)


def _gathers(load, var: int, kernel, sizes: list[int]) -> bool:
    """Whether a load takes elements that lie apart, of a tensor that is large."""
    if load.op != "load" or load.attr < 0 or sizes[load.attr] < MUCH or _by_position(load.args[0], kernel):
        return False
    return _coefficient(load.args[0], var, kernel) not in (0, 1)


def _by_position(offset, kernel) -> bool:
    """Whether elements are picked by positions that lie in memory: then somebody asked for it."""
    whole = kernel.linear[offset.attr] if offset.op == "linear" else offset
    return any(x.op in ("load", "load_if") for x in topological([whole]))


def _coefficient(e, var: int, kernel) -> int | None:
    """Of a loop variable in an offset: 0, 1, or None for any other."""
    if e.op == "var":
        return 1 if e.attr == var else 0
    if e.op == "linear":
        return _coefficient(kernel.linear[e.attr], var, kernel)
    parts = [_coefficient(a, var, kernel) for a in e.args]
    if e.op == "add" and None not in parts:
        return sum(parts) if sum(parts) <= 1 else None
    return 0 if all(p == 0 for p in parts) else None


def _number(e, numbers: list[int]) -> int | None:
    """The value of a size or a constant, or what it is at most; None of what loops decide on."""
    if e.op == "min":
        known = [n for n in (_number(a, numbers) for a in e.args) if n is not None]
        return min(known, default=None)
    if e.op == "const":
        return e.attr
    if e.op == "int":
        return numbers[e.attr]
    return None
