"""Matrix products and convolutions as C loops.

Both keep a block of results in local arrays, ROWS rows (or pixels) by LANES columns (or channels), and add to it one product after
another; compilers keep such blocks in registers and vectorise their columns. So columns are what lies one after the other in
memory: weights that only this call reads are stored that way when the program is exported.
"""

from __future__ import annotations

import contextlib
import math

import numpy as np

from tandem.codegen.buffer import dense_strides
from tandem.codegen.c.ops import TYPE
from tandem.export.c99.call import Call, Operand
from tandem.export.c99.text import offset, plus

ROWS, LANES = 4, 16
ROW_LANES = 32  # of a product with one row
PARTS = 8  # sums of which a dot product consists


def _cuts(size: int, step: int) -> list[tuple[int, int, int]]:
    """[0, size) as (begin, end, step): whole blocks, and what is left."""
    whole = size - size % step
    found = [(0, whole, step)] if whole else []
    return [*found, (whole, size, size % step)] if size % step else found


def _block(t, dtype, rows: int, width: int, bias: str, products, column, row, store):
    """rows x width results: starts them with the bias, adds what the loops of `products` give, stores them.

    products: a context of loops that gives counters; column(counters), row(r, counters): the factors of a product at them.
    Columns are counted by `q`.
    """
    accumulator = t.accumulator(dtype)
    kind, names = TYPE[accumulator], [f"sum{r}" for r in range(rows)]
    t.line(f"{kind} " + ", ".join(f"{n}[{width}]" for n in names) + ";")
    start = t.load(dtype, bias) if bias else "0"
    t.line(f"for (int q = 0; q < {width}; ++q) {' = '.join(f'{n}[q]' for n in names)} = {start};")
    with products as counters, t.block(""):
        for r in range(rows):
            t.line(f"const {kind} x{r} = {t.load(dtype, row(r, counters))};")
        with t.block(f"for (int q = 0; q < {width}; ++q)"):
            t.line(f"const {kind} y = {t.load(dtype, column(counters))};")
            t.line(" ".join(t.multiply_add(accumulator, f"{n}[q]", f"x{r}", "y") for r, n in enumerate(names)))
    with t.block(f"for (int q = 0; q < {width}; ++q)"):
        for r, n in enumerate(names):
            t.line(f"{store(r)} = {t.narrow(dtype, f'{n}[q]')};")


# -- matrix products


def matmul(call: Call):
    """a (*b, m, k) @ b (*b, k, n) -> (*b, m, n), and a bias (n) on every row if there is one."""
    call.require_real()
    t, (a, b), out = call.text, call.inputs[:2], call.outputs[0]
    if b.constant is not None and b.strides[-1] != 1:
        b = call.pack(1, lambda w: w)  # row-major: columns one after the other
    bias = call.inputs[2] if len(call.inputs) > 2 else None
    batch = out.shape[:-2]
    with t.loops([f"batch{i}" for i in range(len(batch))], batch) as counters:

        def at(x: Operand, *last) -> str:
            lead = zip(counters, x.strides[: len(batch)], strict=True)
            return f"{x.name}[{offset(*lead, *zip(last, x.strides[-2:], strict=True))}]"

        def bias_at(j: str) -> str:
            return f"{bias.name}[{offset((j, bias.strides[0]))}]" if bias else ""

        apart = b.strides[-1] != 1 and out.shape[-1] != 1 and a.shape[-1] != 1
        (_by_dots if apart else _by_blocks)(t, a, b, out, at, bias_at)


def _by_blocks(t, a, b, out, at, bias_at):
    m, n, k = out.shape[-2], out.shape[-1], a.shape[-1]
    for top, bottom, rows in _cuts(m, ROWS):
        with t.loop("i", bottom, top, rows) as i:
            for left, right, width in _cuts(n, ROW_LANES if m == 1 else LANES):
                with t.loop("j", right, left, width) as j, t.block(""):
                    _block(
                        t, out.dtype, rows, width, bias_at(plus(j, "q")), t.loops(["k"], [k]),
                        column=lambda counters, j=j: at(b, counters[0], plus(j, "q")),
                        row=lambda r, counters, i=i: at(a, plus(i, r), counters[0]),
                        store=lambda r, i=i, j=j: at(out, plus(i, r), plus(j, "q")),
                    )  # fmt: skip


def _by_dots(t, a, b, out, at, bias_at):
    """Where columns of b lie apart: every result by itself, in PARTS sums that compilers keep in a vector."""
    m, n, k = out.shape[-2], out.shape[-1], a.shape[-1]
    accumulator = t.accumulator(out.dtype)
    kind, whole = TYPE[accumulator], k - k % PARTS
    with t.loop("i", m) as i, t.loop("j", n) as j, t.block(""):

        def add(total: str, place: str) -> str:
            x, y = t.load(out.dtype, at(a, i, place)), t.load(out.dtype, at(b, place, j))
            return t.multiply_add(accumulator, total, x, y)

        t.line(f"{kind} sum = {t.load(out.dtype, bias_at(j)) if bias_at(j) else '0'};")
        if whole:
            t.line(f"{kind} part[{PARTS}] = {{0}};")
            with t.block(f"for (int k = 0; k < {whole}; k += {PARTS})"):
                t.line(f"for (int q = 0; q < {PARTS}; ++q) {add('part[q]', 'k + q')}")
            t.line(f"for (int q = 0; q < {PARTS}; ++q) {t.multiply_add(accumulator, 'sum', 'part[q]', '1')}")
        if whole < k:
            t.line(f"for (int k = {whole}; k < {k}; ++k) {add('sum', 'k')}")
        t.line(f"{at(out, i, j)} = {t.narrow(out.dtype, 'sum')};")


# -- convolution


class _Places:
    """Where elements of a convolution lie, as text, given counters: group, output channel, input channel, window, pixel."""

    def __init__(self, call: Call, n: str, group: str, source: Operand, filters: tuple):
        self.op, self.n, self.group, self.source = call.op, n, group, source
        self.w, self.out = call.inputs[1], call.outputs[0]
        self.bias = call.inputs[2] if len(call.inputs) > 2 else None
        self.filters = filters  # strides of the weight: group, output channel, input channel, *window
        self.outputs, self.channels = self.out.shape[1] // self.op.groups, source.shape[1] // self.op.groups

    def x(self, counters, pixel) -> str:
        op, steps = self.op, self.source.strides
        c, *window = counters
        terms = [(self.n, steps[0]), (self.group, self.channels * steps[1]), (c, steps[1])]
        for i, (tap, place) in enumerate(zip(window, pixel, strict=True)):
            terms += [(place, op.stride[i] * steps[2 + i]), (tap, op.dilation[i] * steps[2 + i])]
        return f"{self.source.name}[{offset(*terms)}]"

    def weight(self, o, counters) -> str:
        return f"{self.w.name}[{offset(*zip((self.group, o, *counters), self.filters, strict=True))}]"

    def result(self, o, pixel) -> str:
        steps = self.out.strides
        lead = [(self.n, steps[0]), (self.group, self.outputs * steps[1]), (o, steps[1])]
        return f"{self.out.name}[{offset(*lead, *zip(pixel, steps[2:], strict=True))}]"

    def start(self, o) -> str:
        if self.bias is None:
            return ""
        step = self.bias.strides[0]
        return f"{self.bias.name}[{offset((self.group, self.outputs * step), (o, step))}]"


def conv_forward(call: Call):
    """x (N, C, *s), w (O, C / groups, *k) -> (N, O, *out), over one to three spatial axes."""
    call.require_real()
    t, op, (x, w), out = call.text, call.op, call.inputs[:2], call.outputs[0]
    kernel, outputs = w.shape[2:], out.shape[1] // op.groups
    along_channels = outputs >= 4
    filters = (outputs * w.strides[0], *w.strides)
    if w.constant is not None and along_channels:  # (groups, C / groups, *k, O / groups)
        steps = call.pack(1, lambda v: np.moveaxis(v.reshape(op.groups, outputs, *v.shape[1:]), 1, -1)).strides
        filters = (steps[0], steps[-1], *steps[1:-1])
    with t.loop("n", x.shape[0]) as n:
        source = _padded(call, n) if any(op.pad_low) or any(op.pad_high) else x
        with t.loops(["group", "p0", "p1"], [op.groups, *out.shape[2:-1]]) as (group, *pixel):
            at = _Places(call, n, group, source, filters)
            (_channel_blocks if along_channels else _pixel_blocks)(t, at, kernel, pixel)


def _windows(t, at: _Places, kernel):
    return t.loops(["c", "k0", "k1", "k2"], [at.channels, *kernel])


def _channel_blocks(t, at: _Places, kernel, pixel):
    """ROWS pixels of a row by LANES channels at a time."""
    for first, last, rows in _cuts(at.out.shape[-1], ROWS):
        with t.loop("p", last, first, rows) as p:
            for left, right, width in _cuts(at.outputs, LANES):
                with t.loop("o", right, left, width) as o, t.block(""):
                    _block(
                        t, at.out.dtype, rows, width, at.start(plus(o, "q")), _windows(t, at, kernel),
                        column=lambda counters, o=o: at.weight(plus(o, "q"), counters),
                        row=lambda r, counters, p=p: at.x(counters, [*pixel, plus(p, r)]),
                        store=lambda r, p=p, o=o: at.result(plus(o, "q"), [*pixel, plus(p, r)]),
                    )  # fmt: skip


def _pixel_blocks(t, at: _Places, kernel, pixel):
    """Few channels, as of depthwise convolutions: LANES pixels of a row at a time."""
    with t.loop("o", at.outputs) as o:
        for first, last, width in _cuts(at.out.shape[-1], LANES):
            with t.loop("p", last, first, width) as p, t.block(""):
                _block(
                    t, at.out.dtype, 1, width, at.start(o), _windows(t, at, kernel),
                    column=lambda counters, p=p: at.x(counters, [*pixel, plus(p, "q")]),
                    row=lambda r, counters, o=o: at.weight(o, counters),
                    store=lambda r, p=p, o=o: at.result(o, [*pixel, plus(p, "q")]),
                )  # fmt: skip


def _padded(call: Call, n: str) -> Operand:
    """A copy of one sample with zeros around it, in scratch memory."""
    t, op, x = call.text, call.op, call.inputs[0]
    sizes = tuple(s + a + b for s, a, b in zip(x.shape[2:], op.pad_low, op.pad_high, strict=True))
    made = Operand("scratch", x.dtype, (1, x.shape[1], *sizes), (0, *dense_strides((x.shape[1], *sizes))))
    call.scratch = (x.dtype, math.prod(made.shape))
    t.line(f"for (int i = 0; i < {math.prod(made.shape)}; ++i) scratch[i] = {t.zero(x.dtype)};")
    first = sum(p * s for p, s in zip(op.pad_low, made.strides[2:], strict=True))
    with t.loops(["i0", "i1", "i2", "i3"], x.shape[1:]) as counters:
        to = offset((first, 1), *zip(counters, made.strides[1:], strict=True))
        t.line(f"scratch[{to}] = {x.name}[{offset((n, x.strides[0]), *zip(counters, x.strides[1:], strict=True))}];")
    return made


def conv_backward_data(call: Call):
    """A transposed convolution: g (N, O, *out), w (O, C / groups, *k) -> (N, C, *size), each result by itself."""
    call.require_real()
    t, op, (g, w), out = call.text, call.op, call.inputs, call.outputs[0]
    outputs, channels, axes = g.shape[1] // op.groups, out.shape[1] // op.groups, len(op.stride)
    accumulator = t.accumulator(out.dtype)
    sizes = (out.shape[0], op.groups, channels, *out.shape[2:])
    with t.loops(["n", "group", "c", "p0", "p1", "p2"], sizes) as (n, group, c, *pixel), t.block(""):
        t.line(f"{TYPE[accumulator]} sum = 0;")
        with contextlib.ExitStack() as inside:
            taps = []
            for i in range(axes):
                taps.append(inside.enter_context(t.loop(f"k{i}", w.shape[2 + i])))
                place = offset((pixel[i], 1), (op.pad_low[i], 1), (taps[-1], -op.dilation[i]))
                inside.enter_context(t.block(""))
                t.line(f"const int from{i} = {place};")
                stride, size = op.stride[i], g.shape[2 + i]
                exact = f" && from{i} % {stride} == 0" if stride > 1 else ""
                inside.enter_context(t.block(f"if (from{i} >= 0 && from{i} < {size * stride}{exact})"))
            o = inside.enter_context(t.loop("o", outputs))
            lead = [(n, g.strides[0]), (group, outputs * g.strides[1]), (o, g.strides[1])]
            moved = [(f"from{i} / {op.stride[i]}", g.strides[2 + i]) for i in range(axes)]
            filters = [(group, outputs * w.strides[0]), (o, w.strides[0]), (c, w.strides[1])]
            x = t.load(g.dtype, f"{g.name}[{offset(*lead, *moved)}]")
            y = t.load(w.dtype, f"{w.name}[{offset(*filters, *zip(taps, w.strides[2:], strict=True))}]")
            t.line(t.multiply_add(accumulator, "sum", x, y))
        to = [(n, out.strides[0]), (group, channels * out.strides[1]), (c, out.strides[1])]
        t.line(f"{out.name}[{offset(*to, *zip(pixel, out.strides[2:], strict=True))}] = {t.narrow(out.dtype, 'sum')};")
