"""Kernels for CUDA written as text, where loops over elements are not enough: what their sources share."""

from __future__ import annotations

from tandem.codegen.buffer import Buffer
from tandem.codegen.cuda.kernel import TextKernel, arguments, signature
from tandem.codegen.cuda.ops import C_TYPE, STREAMED
from tandem.codegen.schedule import KernelStep
from tandem.graph.symbolic import Dim, ceildiv, product

# Neighbours that may start at odd elements, as views do.
ANY = (
    STREAMED
    + """\
template <int n, class T> DEVICE void load_any(T* to, const T* from) {
  if ((u64)from & (n * sizeof(T) - 1)) for (int k = 0; k < n; ++k) to[k] = from[k]; else load_all<n>(to, from);
}
template <int n, class T> DEVICE void store_any(T* to, const T* from) {
  if ((u64)to & (n * sizeof(T) - 1)) for (int k = 0; k < n; ++k) to[k] = from[k]; else store_whole<n>(to, from);
}
"""
)


class Text:
    """A kernel under construction. Sizes that are known are written as numbers; others become arguments."""

    def __init__(self, name: str, node, threads: tuple[int, int] = (256, 1), reports: bool = False):
        self.name = name
        self.node = node
        self.threads = threads
        self.reports = reports
        self.buffers: list[Buffer] = []
        self.writes: list[Buffer] = []
        self.ints: dict = {}
        self.names = 0
        self.shared = 0  # bytes of shared memory that launches ask for
        self.exact = False  # uses instructions of one compute capability only
        self.resident = 0  # blocks that shall have room on a multiprocessor

    def pointer(self, buffer: Buffer, writes: bool = False) -> str:
        if writes and not any(b is buffer for b in self.writes):
            self.writes.append(buffer)
        for i, b in enumerate(self.buffers):
            if b is buffer:
                return f"p{i}"
        self.buffers.append(buffer)
        return f"p{len(self.buffers) - 1}"

    def dim(self, d: Dim) -> str:
        if type(d) is int:
            return f"{d}ll" if abs(d) > 2**31 - 1 else f"{d}"
        return f"a.n[{self.ints.setdefault(d, len(self.ints))}]"

    def fresh(self, prefix: str = "t") -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def digits(self, flat: str, shape, names: list[str]) -> str:
        """Statements that split a row-major number into indices."""
        lines, rest = [], flat
        for k in reversed(range(len(shape))):
            if k == 0:
                lines.append(f"const i64 {names[0]} = {rest};")
            else:
                after, n = self.fresh(), self.dim(shape[k])
                lines.append(
                    f"const i64 {after} = udiv((i64)({rest}), (i64)({n})), {names[k]} = {rest} - {after} * {n};"
                )
                rest = after
        return " ".join(lines)

    def offset(self, buffer: Buffer, names: list[str]) -> str:
        return " + ".join([f"{i} * {self.dim(s)}" for i, s in zip(names, buffer.strides)]) or "0"

    def at(self, buffer: Buffer, names: list[str], writes: bool = False) -> str:
        return f"{self.pointer(buffer, writes)}[{self.offset(buffer, names)}]"

    def flat(self, count: Dim, body: str, helpers: str = "") -> KernelStep:
        """One thread for each i in [0, count)."""
        n = self.dim(count)
        threads = self.threads[0]
        text = f"const i64 i = (i64)blockIdx.x * {threads} + threadIdx.x; if (i >= {n}) return;\n{body}"
        return self.step(text, ceildiv(count, threads), helpers)

    def step(self, body: str, blocks: Dim, helpers: str = "") -> KernelStep:
        pointers = "\n".join(
            f"{C_TYPE[b.dtype]}* p{i} = ({C_TYPE[b.dtype]}*)a.p[{i}];" for i, b in enumerate(self.buffers)
        )
        head = arguments(len(self.buffers), len(self.ints), self.reports)
        text = f"{head}\n{helpers}\n{signature(self.name, self.threads, self.resident)} {{\n{pointers}\n{body}\n}}\n"
        kernel = TextKernel(self.name, text, self.threads, self.reports, self.shared, self.exact)
        return KernelStep(kernel, self.buffers, tuple(self.ints), blocks, 1, 1.0, [self.node], self.writes)


def names_of(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{k}" for k in range(count)]


def wide_type(dtype) -> str:
    """The type in which arithmetic on elements happens."""
    return "float" if C_TYPE[dtype] in ("f16", "bf16") else C_TYPE[dtype]


def read(dtype, text: str) -> str:
    return f"widen({text})" if C_TYPE[dtype] in ("f16", "bf16") else text


def write(dtype, text: str) -> str:
    return f"narrow<{C_TYPE[dtype]}>({text})" if C_TYPE[dtype] in ("f16", "bf16") else f"({C_TYPE[dtype]})({text})"


def count_of(buffer: Buffer) -> Dim:
    return product(buffer.shape)
