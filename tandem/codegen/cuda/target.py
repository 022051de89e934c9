"""A CUDA device as what steps are made for."""

from __future__ import annotations

import functools

from tandem import _runtime
from tandem.codegen import buffer as memory
from tandem.codegen.buffer import same
from tandem.codegen.costs import CudaCosts, little_traffic
from tandem.codegen.cuda import nests as cuda_nests
from tandem.codegen.cuda import routines as cuda_routines
from tandem.codegen.cuda.batch import batch, together
from tandem.codegen.cuda.compile import begin, compiling_beside
from tandem.codegen.cuda.fft import fft_lines
from tandem.codegen.cuda.kernel import CudaKernel
from tandem.codegen.cuda.render import source
from tandem.codegen.cuda.rules import RULES
from tandem.codegen.cuda.workers import begin_ahead
from tandem.codegen.order import writes_input
from tandem.codegen.repeat import repeat_part
from tandem.codegen.schedule import KernelStep, LibraryStep
from tandem.codegen.target import Target
from tandem.graph.ir import Graph, Value
from tandem.graph.symbolic import ceildiv, hint
from tandem.ops.conv import ConvBackwardWeight
from tandem.ops.matmul import Matmul
from tandem.ops.movement import Permute, Reshape
from tandem.ops.windows import channels_last_strides, is_channels_last
from tandem.switches import CUSOLVER

LONG_ROW = 256


def _multiplies(node, users: dict) -> bool:
    """Whether node is a product, or shows rows to one."""
    if isinstance(node.op, Reshape) and same(node.inputs[0].type.shape[-1], node.outputs[0].type.shape[-1]):
        return any(_multiplies(user, users) for user in users.get(node.outputs[0], ()))
    return isinstance(node.op, (Matmul, Permute))


class CudaTarget(Target):
    kind = "cuda"
    rules = RULES
    has_own_memory = True
    approximates = True
    starts_early = True
    fails_first = True
    guards_writes = True
    overwriting = "rows"
    writes_columns = True  # a thread reads and writes its own column
    sums_rows_on = True
    keeps_narrow = True
    keeps_along = True
    picks_at_once = True
    joins_concats = True

    def image_axes(self, graph) -> int:
        return 4

    def __init__(self, device: int):
        self.device = device  # of cuda:device
        self.number = device + 1

    def compiling(self, is_large: bool, kinds: int):
        return compiling_beside(self.device, kinds)

    def is_cheap(self, kept, value: Value, reads: int) -> bool:
        return little_traffic(kept, value)

    @functools.cached_property
    def costs(self) -> CudaCosts:
        """Where there is no device, as when sources are checked without one, those of a large one."""
        if _runtime.cuda_unavailable():
            return CudaCosts(132)
        _, _, _, processors, *_ = _runtime.cuda_properties(self.device)
        return CudaCosts(processors)

    @functools.cached_property
    def capability(self) -> int:
        """Such as 90. Where there is no device, as when sources are checked without one, 90."""
        if _runtime.cuda_unavailable():
            return 90
        _, major, minor, *_ = _runtime.cuda_properties(self.device)
        return 10 * major + minor

    def begin_ahead(self, graph: Graph):
        """An operator that is new is traced for a program: has ready, beside that, what its compilation and its run will need."""
        begin_ahead(self.device)
        product = next((node for node in graph.nodes if isinstance(node.op, Matmul)), None)
        if product is not None and not _runtime.cuda_unavailable():
            from tandem.codegen.cuda.libraries import open_products_ahead

            open_products_ahead(self.device, product.inputs[0].dtype)

    def source_of(self, kernel) -> str:
        return source(kernel)

    def begin(self, steps: list, alone: bool = False):
        """Has steps of a program compiled while others are still being made; `alone`: only those that become no part of others."""
        if _runtime.cuda_unavailable():
            return
        self.guard(steps)
        for step in steps:
            if isinstance(step, KernelStep) and not (alone and together(step)):
                begin(step.kernel, self.device, self.capability)

    def repeat_part(self, op, layouts, resolve):
        """A loop over single elements as a kernel of one thread."""

        def kernel(name, pointers, locals, linear, body):
            return CudaKernel(name, pointers, locals, linear, body, (1, 1), False, frozenset(), None, 0)

        return repeat_part(op, layouts, resolve, kernel, on_host=True)

    def allocate(self, value: Value, shape: tuple, order: tuple, users: dict) -> memory.Buffer:
        """Memory for a value inside the program. Long rows of matrices that products read or write start at multiples of 16 bytes,
        without which tensor cores run at a fraction of their speed."""
        n = shape[-1] if shape else 1
        row_major = order == tuple(range(len(shape)))
        if len(shape) < 2 or not row_major or value.dtype.itemsize != 2 or hint(n) < LONG_ROW or hint(n) % 8 == 0:
            return memory.allocate(value.dtype, shape, order)
        if not isinstance(value.op, Matmul) and not any(_multiplies(user, users) for user in users.get(value, ())):
            return memory.allocate(value.dtype, shape, order)
        padded = memory.allocate(value.dtype, (*shape[:-1], ceildiv(n, 8) * 8))
        return memory.slice_(padded, (0,) * len(shape), (1,) * len(shape), shape)

    def output_strides(self, node, buffers) -> tuple | None:
        """How the result of a library call lies, where the operator leaves that open: gradients of weights like the images."""
        if isinstance(node.op, ConvBackwardWeight) and is_channels_last(buffers[0]):
            return channels_last_strides(node.outputs[0].type.shape)
        return None

    def reduces_alone(self, count) -> bool:
        return type(count) is int and count <= self.costs.row_of_a_block

    def sums_across(self, group, reduced: frozenset, dtype) -> bool:
        """Whether a kernel over rows can also sum across them."""
        return cuda_nests.sums_across(group, reduced, dtype)

    def nests(self) -> dict:
        return {
            "elementwise": cuda_nests.elementwise, "rows": cuda_nests.rows, "columns": cuda_nests.columns,
            "copy": cuda_nests.copy,
        }  # fmt: skip

    def guard(self, steps: list):
        """Has steps that write what existed before them write nothing once a check has failed (Note [Guarded writes])."""
        for step in steps:
            if isinstance(step, KernelStep) and writes_input(step):
                step.kernel.guarded = True

    def finish(self, steps: list) -> list:
        """The steps of a whole schedule, put together where that saves launches."""
        return batch(steps) if len(steps) > 3 else steps

    def library_steps(self, fusion, step: LibraryStep) -> list:
        """What a library call becomes: our own kernels, or a call of an NVIDIA library."""
        steps: list = []
        inputs = []
        for x in step.inputs:
            if x.on_host:  # libraries read device memory
                there = memory.allocate(x.dtype, x.shape)
                steps.append(cuda_nests.copy(fusion, x, there, step.node))
                x = there
            inputs.append(x)
        step.inputs = inputs
        if step.routine == "fft_lines":
            return steps + fft_lines(fusion, step)
        routine = cuda_routines.ROUTINES.get(step.routine)
        if routine is not None:
            made = routine(fusion, step)
            if made is not None:
                return steps + made
        library = step.node.op.cuda_library
        if not library or (library == "cusolver" and not CUSOLVER):
            step.routine = "host." + step.routine  # on copies of its operands, by the routine of the CPU
            return [*steps, step]
        step.routine = "cuda." + step.routine
        return [*steps, step]
