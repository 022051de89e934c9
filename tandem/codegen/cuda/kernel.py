"""Kernels for CUDA devices: made of loops and expressions, or written by hand; and what their sources have in common.

Note [Guarded writes]
A kernel that finds an index out of range says so in the device's report (src/device/cuda/launches.h), and the host learns of it
when it next waits. By then the rest of the step is queued. So the kernel also sets a flag in the device's memory, and kernels that
write what existed before them, such as parameters, read the flag and store nothing while it is set; it is cleared when the error
is raised. The flag is read when a kernel begins and used at the stores, so that nothing waits for it.
"""

from __future__ import annotations

from tandem._runtime import KernelExtra
from tandem.codegen.expr import Expr
from tandem.codegen.loops import Kernel
from tandem.dtypes import DType


class CudaKernel(Kernel):
    """A kernel with what a launch needs to know.

    threads    (x, y) of a block
    team       threadIdx.y runs through what is reduced (or through a tile), not through items
    by_value   slots of single elements on the host, whose values come with the launch
    items      number of items, where one block serves several
    kept       pieces of a row that each thread keeps in registers from the first pass to the last; 0: rows are read in every pass
    constant   slots of memory that nothing writes while the kernel runs
    aligned    slots that start at multiples of 16 bytes, whoever calls
    known      integers that are known sizes -> the power of two that divides them (Note [Sizes as arguments])
    inverses   integers -> those that quotients by them are computed with
    guarded    writes nothing once a check has failed (Note [Guarded writes])
    flat       of a flat loop whose sizes are known, integers: whole pieces of a row, their inverse, all pieces
    once       no thread takes more than one piece of a flat loop
    """

    aligned: frozenset[int] = frozenset()
    known: dict[int, int] = {}
    inverses: dict[int, int] = {}
    flat: tuple[int, int, int] | None = None
    once = False

    reports = False
    guarded = False
    num_ints = 0  # that a launch passes, used or not

    def __init__(self, name: str, pointers: list[DType], locals: list, linear: list[Expr], body: list,
                 threads: tuple[int, int], team: bool, by_value: frozenset[int], items: Expr | None, kept: int,
                 constant: frozenset[int] = frozenset()):  # fmt: skip
        super().__init__(name, pointers, locals, linear, body)
        self.threads = threads
        self.team = team
        self.by_value = by_value
        self.items = items
        self.kept = kept
        self.constant = constant

    def facts(self) -> str:
        """All that its source depends on, besides its statements."""
        slots = f"{sorted(self.by_value)} {sorted(self.constant)} {sorted(self.aligned)}"
        sizes = f"{self.known} {self.inverses} {self.flat} {self.once} {self.num_ints}"
        return f"{self.threads} {slots} {self.kept} {sizes} {self.guarded}"


class TextKernel:
    """A kernel written by hand: `text` follows PRELUDE and defines Arguments and `kernel`.

    shared: bytes of shared memory that launches ask for; exact: uses instructions of one compute capability only.
    """

    def __init__(
        self,
        name: str,
        text: str,
        threads: tuple[int, int] = (256, 1),
        reports: bool = False,
        shared: int = 0,
        exact=False,
        guarded: bool = False,
    ):
        self.name = name
        self.text = text
        self.threads = threads
        self.reports = reports
        self.shared = shared
        self.exact = exact
        self.guarded = guarded
        self.skips = guarded  # its stores look at the flag themselves


def entry(name: str) -> str:
    """The name of a kernel's function, as profilers show it."""
    return "td_" + "".join(c if c.isalnum() else "_" for c in name)[:80]


def signature(name: str, threads: tuple[int, int], blocks: int = 0) -> str:
    """`blocks`: how many of them shall have room on a multiprocessor."""
    bounds = f"__launch_bounds__({threads[0] * threads[1]}{f', {blocks}' if blocks else ''})"
    return f'extern "C" __global__ void {bounds} {entry(name)}(const __grid_constant__ Arguments a)'


REPORTS, GUARDED = KernelExtra.Reports.value, KernelExtra.Guarded.value  # what follows a kernel's operands and integers


def extra_words(kernel) -> int:
    return REPORTS * kernel.reports | GUARDED * kernel.guarded


def arguments(pointers: int, ints: int, reports: bool = False) -> str:
    fields = [f"u64 p[{max(pointers, 1)}];" if pointers else "", f"i64 n[{ints}];" if ints else ""]
    return f"struct Arguments {{ {' '.join(f for f in fields if f)} {'u64 report, number; ' if reports else ''}}};"
