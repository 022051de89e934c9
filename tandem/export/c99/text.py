"""C text: lines with indentation, loops that vanish where there is one round, and elements of any type."""

from __future__ import annotations

import contextlib

from tandem import dtypes
from tandem.codegen.c.ops import TYPE, Ops
from tandem.dtypes import DType


class Text:
    """Lines of a function, with the helpers that they call."""

    def __init__(self, ops: Ops):
        self.ops = ops
        self.lines: list[str] = []
        self.depth = 1

    def line(self, text: str):
        self.lines.append("  " * self.depth + text)

    @contextlib.contextmanager
    def block(self, head: str):
        if not head and self.lines and self.lines[-1].endswith("{"):  # a scope has just begun
            yield
            return
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextlib.contextmanager
    def loop(self, name: str, end, start=0, step: int = 1):
        """The counter's name inside; a literal where there is but one round."""
        if isinstance(end, int) and isinstance(start, int) and start < end <= start + step:
            yield str(start)
            return
        advance = f"++{name}" if step == 1 else f"{name} += {step}"
        with self.block(f"for (int {name} = {start}; {name} < {end}; {advance})"):
            yield name

    @contextlib.contextmanager
    def loops(self, names, sizes):
        """Nested loops; their counters inside."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(self.loop(name, size)) for name, size in zip(names, sizes, strict=False)]

    # -- elements

    def accumulator(self, dtype: DType) -> DType:
        """The type that sums of elements are kept in."""
        return dtypes.float32 if dtype in (dtypes.float16, dtypes.bfloat16) else dtype

    def zero(self, dtype: DType) -> str:
        return f"({self.ops.type(dtype)}){{0}}" if TYPE[dtype] in ("float16", "bfloat16") or dtype.is_complex else "0"

    def load(self, dtype: DType, text: str) -> str:
        wide = self.accumulator(dtype)
        return text if wide is dtype else self.ops.cast(text, dtype, wide)

    def narrow(self, dtype: DType, text: str) -> str:
        wide = self.accumulator(dtype)
        return text if wide is dtype else self.ops.cast(text, wide, dtype)

    def multiply_add(self, dtype: DType, total: str, x: str, y: str) -> str:
        """The statement total += x * y, without overflow that C leaves undefined."""
        if dtype.kind == "float":
            return f"{total} += {x} * {y};"
        if dtype is dtypes.bool_:
            return f"{total} |= {x} & {y};"
        wide = "uint64_t" if dtype.itemsize == 8 else "uint32_t"
        return f"{total} = ({TYPE[dtype]})(({wide}){total} + ({wide}){x} * ({wide}){y});"


def plus(counter: str, more) -> str:
    """counter + more, where either may be zero."""
    return str(more) if counter == "0" else f"{counter} + {more}" if more else counter


def offset(*terms) -> str:
    """The sum of counter * stride over (counter, stride); what is zero is left out."""
    parts, constant = [], 0
    for counter, stride in terms:
        if stride == 0 or counter == "0":
            continue
        if str(counter).lstrip("-").isdigit():
            constant += int(counter) * stride
        else:
            inner = counter if stride == 1 or counter.isidentifier() else f"({counter})"
            parts.append(inner if stride == 1 else f"{inner} * {stride}")
    if constant or not parts:
        parts.append(str(constant))
    return " + ".join(parts)
