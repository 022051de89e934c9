"""Launches of one kernel on different memory become one launch: a step of an optimiser updates hundreds of parameters.

Note [Batched launches]
Steps are walked in order. Those that may wait are put into open groups by their kernel; a group goes out, as one launch, before
the first step that depends on it or that it depends on. What may wait: kernels that only write into the program's inputs
(parameters and their state), and small ones, whose cost is their launch. Casts of inputs, as of weights in mixed precision, come
before they are needed: with the first of them, as many as are still in the device's cache when they are used.
"""

from __future__ import annotations

from tandem.codegen.buffer import root_of
from tandem.codegen.cuda.kernel import CudaKernel, TextKernel
from tandem.codegen.cuda.render import render
from tandem.codegen.schedule import KernelStep
from tandem.graph.symbolic import hint, product

MOST_WORDS = 3600 // 8  # of arguments in one launch: what every device takes
SMALL = 16  # blocks
CASTS = 16 << 20  # bytes that casts of one launch write


class BatchedStep(KernelStep):
    """Several steps of one kernel; `extents` has the blocks of each."""

    __slots__ = ("extents",)

    def __init__(self, kernel, steps: list[KernelStep]):
        buffers = [b for s in steps for b in s.buffers]
        ints = tuple(d for s in steps for d in s.ints)
        first = steps[0]
        super().__init__(kernel, buffers, ints, first.extent, 1, 1.0, first.nodes, [b for s in steps for b in s.writes])
        self.extents = [s.extent for s in steps]


def _small_first(steps: list) -> list:
    """Small steps that make memory of their own go right behind what they depend on, where others like them are."""
    place: dict[int, float] = {}  # of the last step that wrote a buffer
    keyed = []
    for index, step in enumerate(steps):
        reads, writes = _touched(step)
        key = float(index)
        small = together(step) is not None and hint(step.extent) <= SMALL
        if small and all(root_of(b).kind == "alloc" for b in step.writes):
            latest = max([place.get(b, -1.0) for b in reads], default=-1.0)
            key = latest + 1e-6
        keyed.append((key, index, step))
        for b in writes:
            place[b] = max(key, place.get(b, -1.0))
    return [step for _, _, step in sorted(keyed, key=lambda item: item[:2])]


def _casts_first(steps: list) -> list:
    """Casts of inputs go to the first of their kind, while there is room for what they write."""
    places: list[list] = [[step] for step in steps]
    first: dict[str, tuple[int, int]] = {}  # by kernel: where, and how many bytes
    written: set[int] = set()
    for index, step in enumerate(steps):
        reads, writes = _touched(step)
        if _is_cast(step) and written.isdisjoint(reads):
            key = together(step)
            bytes = sum(hint(product(b.shape)) * b.dtype.itemsize for b in step.writes)
            place, before = first.get(key, (index, CASTS))
            if before + bytes <= CASTS:
                places[index] = []
                places[place].append(step)
                first[key] = place, before + bytes
            else:
                first[key] = index, bytes
        written |= writes
    return [step for place in places for step in place]


def batch(steps: list) -> list:
    steps = _casts_first(_small_first(steps))
    out: list = []
    open_groups: dict[str, _Group] = {}
    for step in steps:
        reads, writes = _touched(step)
        key = together(step)
        for k, group in list(open_groups.items()):
            if group.conflicts(reads, writes) or (k == key and group.full(step)):
                out += open_groups.pop(k).steps()
        if key is None:
            out.append(step)
            continue
        open_groups.setdefault(key, _Group()).add(step, reads, writes)
    for group in open_groups.values():
        out += group.steps()
    return out


class _Group:
    def __init__(self):
        self.members: list[KernelStep] = []
        self.reads: set[int] = set()
        self.writes: set[int] = set()

    def conflicts(self, reads: set[int], writes: set[int]) -> bool:
        return not (self.writes.isdisjoint(reads) and self.writes.isdisjoint(writes) and self.reads.isdisjoint(writes))

    def full(self, step: KernelStep) -> bool:
        return (len(self.members) + 1) * (len(step.buffers) + len(step.ints) + 1) + 1 > MOST_WORDS

    def add(self, step: KernelStep, reads: set[int], writes: set[int]):
        self.members.append(step)
        self.reads |= reads
        self.writes |= writes

    def steps(self) -> list:
        if len(self.members) == 1:
            return self.members
        return [BatchedStep(_batched(self.members[0].kernel, len(self.members)), self.members)]


def _touched(step) -> tuple[set[int], set[int]]:
    if isinstance(step, KernelStep):
        return {id(root_of(b)) for b in step.buffers}, {id(root_of(b)) for b in step.writes}
    return {id(root_of(b)) for b in step.inputs}, {id(root_of(b)) for b in step.outputs}


def together(step) -> str | None:
    """What steps of one launch have in common, or None for those that run where they are."""
    if not isinstance(step, KernelStep) or not isinstance(step.kernel, CudaKernel):
        return None
    if any(root_of(b).kind != "input" for b in step.writes) and hint(step.extent) > SMALL and not _is_cast(step):
        return None
    return f"{step.kernel.key} {step.kernel.facts()}"


def _is_cast(step) -> bool:
    """Whether it does nothing but cast an input of the program into memory of its own."""
    if not isinstance(step, KernelStep) or step.kernel.name != "cast" or len(step.writes) != 1:
        return False
    reads = {root_of(b) for b in step.buffers} - {root_of(b) for b in step.writes}
    return all(b.kind == "input" for b in reads) and root_of(step.writes[0]).kind == "alloc"


def _batched(kernel: CudaKernel, count: int) -> TextKernel:
    """The kernel with a search for the launch that a block belongs to in front."""
    text = render(kernel)
    head, _, body = text.partition('extern "C"')
    body = body.replace("const __grid_constant__ Arguments a", "const __grid_constant__ Launches all", 1)
    opening = body.index("{") + 1
    find = f"""
int part = 0;
for (int step = {_power(count)}; step > 0; step >>= 1)
  if (part + step < {count} && all.starts[part + step] <= blockIdx.x) part += step;
const Arguments& a = all.items[part];
const unsigned block = blockIdx.x - (unsigned)all.starts[part], blocks = (unsigned)(all.starts[part + 1] - all.starts[part]);
"""
    inside = body[opening:].replace("blockIdx.x", "block").replace("gridDim.x", "blocks")
    launches = f"struct Launches {{ u64 starts[{count + 1}]; Arguments items[{count}]; }};\n"
    return TextKernel(
        kernel.name,
        head + launches + 'extern "C"' + body[:opening] + find + inside,
        kernel.threads,
        guarded=kernel.guarded,
    )


def _power(count: int) -> int:
    return 1 << max(count - 1, 1).bit_length() - 1
