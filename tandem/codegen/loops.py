"""The loop IR: what one kernel does, as target-neutral data.

A kernel is a function of pointers, runtime integers and a range [begin, end) of its parallel items. Its body is a list of
statements; scalars in them are Exprs with these leaves, besides constants:

    var      attr = loop variable                           int   attr = position in the runtime integers
    begin, end   the range of items asked for               load  attr = slot, args = (offset,)
    load_if  attr = slot, args = (condition, offset): 0 where the condition does not hold, and memory is not touched
    linear   attr = position in Kernel.linear: an index expression, settled after loops were merged
    scalar   attr = accumulator: its value after Finish

Complex values are only loaded, stored, and built from and taken apart into floats: `complex` (re, im), `real`, `imag`.

Slots 0..len(pointers)-1 are the kernel's pointers; negative slots -1, -2, ... are small local arrays.
"""

from __future__ import annotations

from _blake2 import blake2b  # without hashlib, which loads OpenSSL

from tandem import dtypes, hooks
from tandem.codegen.expr import COST, Expr, compute_dtype
from tandem.dtypes import DType

RENDERED = "12"  # part of every cache key: change it when a renderer makes other code from the same kernel

# Bytes from which on what a kernel stores is not found in a cache later on: more than most machines' last level has per process.
PAST_CACHES = 32 << 20


class Loop:
    """`body` for var in [start, end).

    mode: "serial"; "vector": iterations are independent but for accumulators, so a renderer may run several at once,
    `unroll` vectors per round, and render the body only once where `compact` asks for small code; "lanes": the same, and all are
    one vector, their number being a power of two that is known; "items": the parallel
    loop, whose counter is split into `digits` [(var, size)], the last one fastest.

    total: of a vector loop that is the whole kernel, how many iterations all its calls make together: what is stored by so many
    that caches cannot hold it is better not put there.
    """

    __slots__ = ("body", "compact", "digits", "end", "mode", "start", "step", "total", "unroll", "var")

    def __init__(self, var, start: Expr, end: Expr, body: list, mode="serial", unroll=1, digits=(), step=1,
                 compact=False, total: Expr | None = None):  # fmt: skip
        self.var = var
        self.start = start
        self.end = end
        self.body = body
        self.mode = mode
        self.unroll = unroll
        self.digits = digits
        self.step = step
        self.compact = compact
        self.total = total


class Store:
    __slots__ = ("offset", "slot", "value")

    def __init__(self, slot: int, offset: Expr, value: Expr):
        self.slot = slot
        self.offset = offset
        self.value = value


def wide_total(dtype: DType) -> DType:
    """What blocks of a sum are added up in."""
    return dtypes.float64 if dtype.kind == "float" else dtypes.int64


class Accumulator:
    """A running reduction. kind: sum, prod, max, min, any, all, argmax, argmin. `lanes`: it lives in a vector loop.

    blocked: of a sum whose blocks end with Flush, and whose result is wide: float64, int64. See Note [Sums in blocks].
    compensated: of a sum of float32, which keeps what is rounded away. See Note [Sums on devices] in cuda/nests.py.
    """

    __slots__ = ("blocked", "compensated", "dtype", "id", "kind", "lanes", "unroll")

    def __init__(self, id: int, kind: str, dtype: DType, lanes: bool = True, blocked: bool = False):
        self.id = id
        self.kind = kind
        self.dtype = dtype  # of the value; the position of argmax is int64
        self.lanes = lanes
        self.unroll = 1
        self.blocked = blocked
        self.compensated = False

    @property
    def result(self) -> DType:
        """What Finish gives."""
        if self.kind in ("argmax", "argmin"):
            return dtypes.int64
        return wide_total(self.dtype) if self.blocked else self.dtype


class Declare:
    """Sets an accumulator to the identity of its kind."""

    __slots__ = ("acc",)

    def __init__(self, acc: Accumulator):
        self.acc = acc


class Accumulate:
    __slots__ = ("acc", "position", "value")

    def __init__(self, acc: Accumulator, value: Expr, position: Expr | None = None):
        self.acc = acc
        self.value = value
        self.position = position


class Flush:
    """Ends a block of a sum: what the accumulator holds goes to its total, and it starts from zero again."""

    __slots__ = ("acc",)

    def __init__(self, acc: Accumulator):
        self.acc = acc


class Finish:
    """Combines the lanes of an accumulator: from here on Expr `scalar` with attr acc.id has its result."""

    __slots__ = ("acc",)

    def __init__(self, acc: Accumulator):
        self.acc = acc


class FinishRows:
    """Finish for one reduction of several rows at once: `local` has the results as well, one row's after the other's."""

    __slots__ = ("accs", "local")

    def __init__(self, accs: list[Accumulator], local: int):
        self.accs = accs
        self.local = local


class Transpose:
    """Copies a tile into a local array: local[i * width + j] = pointer[offset + i + j * stride], 0 <= i < rows, 0 <= j < columns.

    The pointer is read along its unit axis i, and the tile can then be read along j. rows, columns <= width.
    """

    __slots__ = ("columns", "local", "offset", "rows", "slot", "stride", "width")

    def __init__(self, local: int, slot: int, offset: Expr, stride: Expr, rows: Expr, columns: Expr, width: int):
        self.local = local
        self.slot = slot
        self.offset = offset
        self.stride = stride
        self.rows = rows
        self.columns = columns
        self.width = width


class Repeat:
    """While `condition` holds and the counter is below `limit`: all variables take the values of `updates` at once, the counter
    goes on by one.

    Variable i is the Expr `scalar` with attr i, here and afterwards; the counter comes after the variables, and last what the
    condition was at the end. starts, start: what they are at first. A kernel with a Repeat has no accumulators.
    """

    __slots__ = ("condition", "limit", "start", "starts", "updates")

    def __init__(self, starts: list[Expr], updates: list[Expr], condition: Expr, start: Expr, limit: Expr):
        self.starts = starts
        self.updates = updates
        self.condition = condition
        self.start = start
        self.limit = limit


class Kernel:
    """One function. `pointers`: dtype per pointer; `locals`: (dtype, size) per local array; key: a hash of what it does."""

    def __init__(
        self, name: str, pointers: list[DType], locals: list[tuple[DType, int]], linear: list[Expr], body: list
    ):
        self.name = name
        self.pointers = pointers
        self.locals = locals
        self.linear = linear
        self.body = body
        self.key = blake2b("\n".join(_describe(self)).encode(), digest_size=16).hexdigest()

    def slot_dtype(self, slot: int) -> DType:
        return self.pointers[slot] if slot >= 0 else self.locals[-slot - 1][0]

    def address(self) -> int:
        """Address of the machine code for this host, compiled or from the disk cache."""
        return hooks.kernel_address(self)

    def __repr__(self):
        return f"<kernel {self.name} {self.key[:8]}>"

    def __str__(self):
        return "\n".join(_describe(self))


def _describe(kernel: Kernel) -> list[str]:
    """The kernel as text: one line per expression and statement. Equal text means equal code."""
    lines = [f"pointers {' '.join(d.short for d in kernel.pointers)}"]
    if kernel.locals:
        lines.append("locals " + " ".join(f"{d.short}[{n}]" for d, n in kernel.locals))
    numbers: dict[int, int] = {}
    linear = kernel.linear
    names: dict[int, int] = {}  # of loop variables: which of a group's axes they are does not matter

    def named(var: int) -> int:
        return var if 1000 <= var < 2000 else names.setdefault(var, len(names))  # those of nest.py mean something

    def number(root: Expr) -> int:
        found = numbers.get(root.id)
        if found is not None:
            return found
        stack = [root]
        while stack:
            e = stack[-1]
            if e.id in numbers:
                stack.pop()
                continue
            args = e.args if e.op != "linear" else (linear[e.attr],)
            missing = [a for a in args if a.id not in numbers]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if e.op == "linear":
                numbers[e.id] = numbers[args[0].id]
                continue
            numbers[e.id] = n = len(numbers)
            attr = "" if e.attr is None else f" {e.attr if e.op != 'var' else named(e.attr)}"
            lines.append(f"{n} {e.op}.{e.dtype.short}{attr} {' '.join([str(numbers[a.id]) for a in args])}")
        return numbers[root.id]

    def walk(body, depth):
        pad = " " * depth
        for s in body:
            if type(s) is Store:
                lines.append(f"{pad}store {s.slot} {number(s.offset)} {number(s.value)}")
            elif type(s) is Loop:
                digits = " ".join(f"{named(v)}:{number(n)}" for v, n in s.digits)
                ends = " ".join(str(number(e)) for e in (s.start, s.end, s.total) if e is not None)
                lines.append(f"{pad}loop {s.mode} {named(s.var)} {ends} {s.step} {s.unroll} {s.compact:d} {digits}")
                walk(s.body, depth + 1)
                lines.append(f"{pad}end")
            elif type(s) is Accumulate:
                position = "" if s.position is None else number(s.position)
                lines.append(f"{pad}accumulate {s.acc.id} {number(s.value)} {position}")
            elif type(s) is Declare:
                kept = f"{s.acc.blocked:d} {s.acc.compensated:d}"
                lines.append(
                    f"{pad}declare {s.acc.id} {s.acc.kind} {s.acc.dtype.short} {s.acc.lanes} {s.acc.unroll} {kept}"
                )
            elif type(s) is Flush:
                lines.append(f"{pad}flush {s.acc.id}")
            elif type(s) is Finish:
                lines.append(f"{pad}finish {s.acc.id}")
            elif type(s) is FinishRows:
                lines.append(f"{pad}finish {' '.join(str(acc.id) for acc in s.accs)} in {s.local}")
            elif type(s) is Repeat:
                starts = [number(e) for e in (*s.starts, s.start, s.limit)]
                lines.append(f"{pad}repeat {starts} {[number(e) for e in s.updates]} while {number(s.condition)}")
            else:
                parts = " ".join(str(number(e)) for e in (s.offset, s.stride, s.rows, s.columns))
                lines.append(f"{pad}transpose {s.local} {s.slot} {s.width} {parts}")

    walk(kernel.body, 0)
    return lines


def expression_cost(roots, seen: set | None = None) -> float:
    """Cheap-instruction units to compute all roots once for one element."""
    seen = set() if seen is None else seen
    total = 0.0
    stack = list(roots)
    while stack:
        e = stack.pop()
        if e.id in seen:
            continue
        seen.add(e.id)
        cost = COST.get(e.op, 1)
        total += cost * compute_dtype(e.dtype).itemsize / 4 if e.dtype is not dtypes.bool_ else cost
        stack.extend(e.args[:2] if e.op == "rarely" else e.args)
    return total
