"""peak: how much memory a schedule will take, known before it runs."""

from __future__ import annotations

from tandem.codegen.buffer import Buffer, root_of
from tandem.codegen.schedule import KernelStep, PartStep, RegionStep, Schedule
from tandem.graph.ir import Graph
from tandem.graph.symbolic import hint


def buffer_bytes(buffer: Buffer) -> int:
    count = buffer.dtype.itemsize
    for d in buffer.shape:
        count *= hint(d)
    return count


def memory_of(graph: Graph, schedule: Schedule) -> dict:
    """Bytes, for concrete sizes: {"inputs", "outputs", "peak", "at": number of the step where the peak is}.

    peak is what the program allocates at most at one time, results included and inputs not. Buffers live from the step that writes
    them to the last one that reads them, results to the end; a library routine's own scratch memory is not counted.
    """
    last: dict[Buffer, int] = {}
    first: dict[Buffer, int] = {}
    for i, step in enumerate(schedule.steps):
        used = step.buffers if isinstance(step, KernelStep) else (*step.inputs, *step.outputs)
        for buffer in used:
            root = root_of(buffer)
            if root.kind == "alloc":
                first.setdefault(root, i)
                last[root] = i
    kept = {root_of(schedule.buffer_of[v]) for v in graph.outputs if v in schedule.buffer_of}
    end = len(schedule.steps)
    change = [0] * (end + 1)
    for buffer, i in first.items():
        size = buffer_bytes(buffer)
        change[i] += size
        if buffer not in kept:
            change[min(last[buffer] + 1, end)] -= size
    live = peak = at = 0
    for i, delta in enumerate(change[:end]):
        live += delta
        here = live + _inside(schedule.steps[i])
        if here > peak:
            peak, at = here, i
    inputs = 0
    for v in graph.inputs:
        size = v.dtype.itemsize
        for d in v.shape:
            size *= hint(d)
        inputs += size
    return {
        "inputs": inputs,
        "outputs": sum(buffer_bytes(b) for b in kept if b.kind == "alloc"),
        "peak": peak,
        "at": at,
    }


def _inside(step) -> int:
    """What a region takes while it runs: memory of its parts, and second copies of what a loop carries."""
    if isinstance(step, PartStep):  # its results are counted outside
        return memory_of(step.graph, step.schedule)["peak"] - sum(map(buffer_bytes, step.outputs))
    if not isinstance(step, RegionStep):
        return 0
    carried = step.op.carried
    total = sum(buffer_bytes(b) for b in step.outputs[:carried])
    inside = [0]
    for part in step.parts:
        taken = set()
        for s in part.schedule.steps:
            taken |= {root_of(b) for b in (s.buffers if isinstance(s, KernelStep) else (*s.inputs, *s.outputs))}
        inside.append(sum(buffer_bytes(b) for b in taken if b.kind == "alloc") + sum(map(_inside, part.schedule.steps)))
    return total + (max(inside) if step.op.name == "cond" else sum(inside))
