"""An LSTM over a sequence on CUDA devices, forward and backward: for each step a product and one pointwise kernel.

See Note [LSTM as one operator] in ops/lstm_sequence.py. Tensor cores want rows of multiples of 16 bytes, so where the hidden size
is none, hidden states and weights are filled up with zeros in memory of our own.
"""

from __future__ import annotations

import functools

from tandem.codegen import buffer as memory
from tandem.codegen.buffer import Buffer, allocate
from tandem.codegen.cuda.nests import copy
from tandem.codegen.cuda.text import Text, count_of, names_of, read, wide_type, write
from tandem.codegen.schedule import KernelStep, LibraryStep
from tandem.graph.symbolic import Dim, ceildiv, hint

_HELPERS = """\
template <class T> DEVICE T logistic(T x) { return T(1) / (T(1) + exp(-x)); }
"""


def _steps(x: Buffer) -> int:
    n = hint(x.shape[0])
    return n if x.shape[0] == n else 0  # a symbolic size leaves a guard


def _order(count: int, reverse: bool):
    return range(count - 1, -1, -1) if reverse else range(count)


def _step_of(x: Buffer, t: int) -> Buffer:
    """x[t] of x (T, *rest)"""
    offset = x.strides[0] * t
    return memory.view(x, x.shape[1:], x.strides[1:], offset)


def _product(node, a: Buffer, b: Buffer, out: Buffer) -> LibraryStep:
    return LibraryStep("cuda.matmul", [a, b], [out], (), (), node)


def _filled(node, x: Buffer, width: Dim) -> tuple[object, Buffer]:
    """x (rows, n) with zeros to the right, up to `width` columns."""
    out = allocate(x.dtype, (x.shape[0], width))
    t = Text("fill_up", node)
    zero = write(x.dtype, "0")
    body = f"""{t.digits("i", out.shape, ["r", "k"])}
{t.at(out, ["r", "k"], True)} = k < {t.dim(x.shape[1])} ? {t.at(x, ["r", "k"])} : {zero};"""
    return t.flat(count_of(out), body), out


def _zeros(node, x: Buffer):
    t = Text("zeros", node)
    names = names_of("d", len(x.shape))
    return t.flat(count_of(x), f"{t.digits('i', x.shape, names)}\n{t.at(x, names, True)} = {write(x.dtype, '0')};")


def _width(h: Dim, dtype) -> Dim:
    """The hidden size, rounded up to rows of multiples of 16 bytes."""
    unit = 16 // dtype.itemsize
    return ceildiv(h, unit) * unit


class _Repeated:
    """A kernel for every step of a sequence. It is written once for steps whose operands lie alike, as all but the first and the
    last do: hundreds of texts that say the same would take as long as everything else that is lowered."""

    def __init__(self, write):
        self.write = write  # the step's operands -> KernelStep
        self.written: dict[tuple, tuple[KernelStep, list[int], list[int]]] = {}

    def __call__(self, *operands: Buffer | None) -> KernelStep:
        facts = tuple(_facts(x, operands) for x in operands)
        if facts not in self.written:
            step = self.write(*operands)
            place = {id(x): i for i, x in enumerate(operands)}
            self.written[facts] = step, [place[id(b)] for b in step.buffers], [place[id(b)] for b in step.writes]
            return step
        step, buffers, writes = self.written[facts]
        return KernelStep(
            step.kernel, [operands[i] for i in buffers], step.ints, step.extent, step.work, step.element_cost, step.nodes,
            [operands[i] for i in writes],
        )  # fmt: skip


def _facts(x: Buffer | None, operands: tuple) -> tuple:
    """What the text of a kernel depends on; strides that are not known are told apart by what they are, which leaves no guard."""
    if x is None:
        return ()
    first = next(i for i, y in enumerate(operands) if y is x)
    return (first, x.dtype, *[s if type(s) is int else id(s) for s in x.strides])


def _forward_kernel(
    node, gates: Buffer, product: Buffer, c: Buffer, hidden: Buffer, cell: Buffer, kept: Buffer, state: Buffer
):
    """One step: hidden, cell and kept of (N, H) and (N, 4 H); `state` is what the next product reads, zeros from column H on."""
    t = Text("lstm_step", node)
    wide = wide_type(cell.dtype)
    size = t.dim(hidden.shape[1])
    load = lambda x, column: f"({wide}){read(x.dtype, t.at(x, ['n', column]))}"
    store = lambda x, column, value: f"{t.at(x, ['n', column], True)} = {write(x.dtype, value)};"
    total = [f"{load(gates, f'(k + {q} * {size})')} + {load(product, f'(k + {q} * {size})')}" for q in range(4)]
    body = f"""{t.digits("i", state.shape, ["n", "k"])}
if (k >= {size}) {{ {store(state, "k", "0")} return; }}
const {wide} in = logistic({total[0]}), forget = logistic({total[1]}), fresh = tanh({total[2]}), out = logistic({total[3]});
const {wide} c = forget * {load(c, "k")} + in * fresh;
const {wide} h = out * tanh(c);
{store(kept, "k", "in")} {store(kept, f"(k + {size})", "forget")}
{store(kept, f"(k + 2 * {size})", "fresh")} {store(kept, f"(k + 3 * {size})", "out")}
{store(cell, "k", "c")} {store(hidden, "k", "h")} {store(state, "k", "h") if state is not hidden else ""}"""
    return t.flat(count_of(state), body, _HELPERS)


def lstm_sequence(fusion, step) -> list:
    gates, h, c, w = step.inputs
    hidden, cells, kept = step.outputs
    node, reverse = step.node, step.node.op.reverse
    n, size = h.shape
    width = _width(size, h.dtype)
    steps: list = []
    padded = width != size  # symbolic sizes leave a guard
    if padded:
        made, w = _filled(node, w, width)
        steps.append(made)
        made, h = _filled(node, h, width)
        steps.append(made)
    product = allocate(gates.dtype, (n, gates.shape[2]))
    transposed = memory.permute(w, (1, 0))
    states = [allocate(h.dtype, (n, width)) for _ in range(2)] if padded else None
    pointwise = _Repeated(functools.partial(_forward_kernel, node))
    for turn, t in enumerate(_order(_steps(gates), reverse)):
        now, cell = _step_of(hidden, t), _step_of(cells, t)
        state = states[turn % 2] if padded else now
        steps.append(_product(node, h, transposed, product))
        steps.append(pointwise(_step_of(gates, t), product, c, now, cell, _step_of(kept, t), state))
        h, c = state, cell
    return steps


def _backward_kernel(
    node, g: Buffer, back: Buffer, kept: Buffer, cell: Buffer, c: Buffer, dc: Buffer, out: Buffer, extra: Buffer | None
):
    """One step: out (N, 4 H) from the gradients g (of this step) and back (by the product of the step after) of the hidden state;
    dc is the cell's gradient, of the step after when it comes and of the step before when it goes."""
    t = Text("lstm_step_backward", node)
    wide = wide_type(cell.dtype)
    size = t.dim(cell.shape[1])
    load = lambda x, column: f"({wide}){read(x.dtype, t.at(x, ['n', column]))}"
    store = lambda x, column, value: f"{t.at(x, ['n', column], True)} = {write(x.dtype, value)};"
    more = f" + {load(extra, 'k')}" if extra is not None else ""
    body = f"""{t.digits("i", cell.shape, ["n", "k"])}
const {wide} in = {load(kept, "k")}, forget = {load(kept, f"(k + {size})")};
const {wide} fresh = {load(kept, f"(k + 2 * {size})")}, gate = {load(kept, f"(k + 3 * {size})")};
const {wide} y = tanh({load(cell, "k")}), dh = {load(g, "k")} + {load(back, "k")};
const {wide} d = {load(dc, "k")} + dh * gate * (1 - y * y){more};
{store(out, "k", "d * fresh * in * (1 - in)")}
{store(out, f"(k + {size})", f"d * {load(c, 'k')} * forget * (1 - forget)")}
{store(out, f"(k + 2 * {size})", "d * in * (1 - fresh * fresh)")}
{store(out, f"(k + 3 * {size})", "dh * y * gate * (1 - gate)")}
{store(dc, "k", "d * forget")}"""
    return t.flat(count_of(cell), body, _HELPERS)


def lstm_sequence_backward(fusion, step) -> list:
    g, kept, cells, c, w, *more = step.inputs
    out, dh, dc_out = step.outputs
    node, reverse = step.node, not step.node.op.reverse
    n, size = c.shape
    width = _width(size, w.dtype)
    steps: list = []
    if width != size:
        made, w = _filled(node, w, width)
        steps.append(made)
    back, dc = allocate(g.dtype, (n, width)), allocate(cells.dtype, (n, size))
    steps += [_zeros(node, back), _zeros(node, dc)]
    pointwise = _Repeated(functools.partial(_backward_kernel, node))
    order = list(_order(_steps(g), reverse))
    for turn, t in enumerate(order):
        before = _step_of(cells, order[turn + 1]) if turn + 1 < len(order) else c
        extra = _step_of(more[0], t) if more else None
        now = _step_of(out, t)
        steps.append(pointwise(_step_of(g, t), back, _step_of(kept, t), _step_of(cells, t), before, dc, now, extra))
        steps.append(_product(node, now, w, back))
    steps.append(copy(fusion, memory.slice_(back, (0, 0), (1, 1), (n, size)), dh, node))
    t = Text("narrow", node)
    t_names = ["n", "k"]
    value = write(dc_out.dtype, f"({wide_type(dc_out.dtype)}){t.at(dc, t_names)}")
    steps.append(t.flat(count_of(dc), f"{t.digits('i', dc.shape, t_names)}\n{t.at(dc_out, t_names, True)} = {value};"))
    return steps
