"""Pooling as C loops."""

from __future__ import annotations

import contextlib

from tandem.codegen.c.ops import TYPE
from tandem.export.c99.call import Call
from tandem.export.c99.text import offset

_OUTER = ["n", "c", "p0", "p1", "p2"]


def _place(x, n, c, inner) -> str:
    return f"{x.name}[{offset((n, x.strides[0]), (c, x.strides[1]), *zip(inner, x.strides[2:], strict=True))}]"


def _flat(inner, sizes) -> str:
    """The position in the flattened spatial axes."""
    text = inner[0]
    for name, size in zip(inner[1:], sizes[1:], strict=True):
        text = f"({text}) * {size} + {name}"
    return text


@contextlib.contextmanager
def _window(call: Call, pixel):
    """Loops over the elements of x in a window; their places inside."""
    t, op, sizes = call.text, call.op, call.inputs[0].shape[2:]
    with contextlib.ExitStack() as inside:
        found = []
        for i, size in enumerate(sizes):
            tap = inside.enter_context(t.loop(f"k{i}", op.kernel[i]))
            place = offset((pixel[i], op.stride[i]), (tap, op.dilation[i]), (-op.padding[i], 1))
            reach = (call.outputs[0].shape[2 + i] - 1) * op.stride[i] + (op.kernel[i] - 1) * op.dilation[i]
            inside.enter_context(t.block(""))
            t.line(f"const int i{i} = {place};")
            if op.padding[i] or reach >= size:
                inside.enter_context(t.block(f"if (i{i} >= 0 && i{i} < {size})"))
            found.append(f"i{i}")
        yield found


@contextlib.contextmanager
def _adaptive_window(call: Call, pixel):
    t, sizes, made = call.text, call.inputs[0].shape[2:], call.outputs[0].shape[2:]
    with contextlib.ExitStack() as inside:
        found = []
        for i, (size, parts) in enumerate(zip(sizes, made, strict=True)):
            p = pixel[i]
            end = f"(({p} + 1) * {size} + {parts - 1}) / {parts}"
            inside.enter_context(t.block(f"for (int i{i} = {p} * {size} / {parts}; i{i} < {end}; ++i{i})"))
            found.append(f"i{i}")
        yield found


def _maxima(call: Call, window):
    call.require_real()
    t, x = call.text, call.inputs[0]
    values, indices = call.outputs
    accumulator = t.accumulator(x.dtype)
    kind = TYPE[accumulator]
    shape = (values or indices).shape
    with t.loops(_OUTER, shape) as (n, c, *pixel), t.block(""):
        t.line(f"{kind} best = {t.ops.identity('max', accumulator)};")
        if indices is not None:
            t.line("int64_t at = -1;")
        with window(call, pixel) as inner:
            t.line(f"const {kind} x = {t.load(x.dtype, _place(x, n, c, inner))};")
            odd = " || x != x" if x.dtype.kind == "float" else ""
            if indices is None:
                t.line(f"if (x > best{odd}) best = x;")
            else:
                t.line(f"if (x > best || at < 0{odd}) best = x, at = {_flat(inner, x.shape[2:])};")
        if values is not None:
            t.line(f"{_place(values, n, c, pixel)} = {t.narrow(x.dtype, 'best')};")
        if indices is not None:
            t.line(f"{_place(indices, n, c, pixel)} = at;")


def pool_max(call: Call):
    _maxima(call, _window)


def pool_adaptive_max(call: Call):
    _maxima(call, _adaptive_window)


def pool_adaptive_avg(call: Call):
    call.require_real()
    t, x, out = call.text, call.inputs[0], call.outputs[0]
    accumulator = TYPE[t.accumulator(x.dtype)]
    with t.loops(_OUTER, out.shape) as (n, c, *pixel), t.block(""):
        t.line(f"{accumulator} sum = 0;")
        t.line("int count = 0;")
        with _adaptive_window(call, pixel) as inner:
            t.line(f"sum += {t.load(x.dtype, _place(x, n, c, inner))};")
            t.line("++count;")
        t.line(f"{_place(out, n, c, pixel)} = {t.narrow(x.dtype, f'sum / ({accumulator})count')};")


def pool_avg(call: Call):
    """Windows count what lies within the image, with include_pad also what lies within its padding."""
    call.require_real()
    t, op, x, out = call.text, call.op, call.inputs[0], call.outputs[0]
    accumulator = TYPE[t.accumulator(x.dtype)]
    with t.loops(_OUTER, out.shape) as (n, c, *pixel), t.block(""):
        t.line(f"{accumulator} sum = 0;")
        t.line("int count = 1;")
        for i, size in enumerate(x.shape[2:]):
            low, high = (-op.padding[i], size + op.padding[i]) if op.include_pad else (0, size)
            first = offset((pixel[i], op.stride[i]), (-op.padding[i], 1))
            with t.block(""):
                t.line("int inside = 0;")
                with t.loop("k", op.kernel[i]) as k, t.block(""):
                    t.line(f"const int at = {first} + {k} * {op.dilation[i]};")
                    t.line(f"inside += at >= {low} && at < {high};")
                t.line("count *= inside;")
        with _window(call, pixel) as inner:
            t.line(f"sum += {t.load(x.dtype, _place(x, n, c, inner))};")
        t.line(f"{_place(out, n, c, pixel)} = {t.narrow(x.dtype, f'sum / ({accumulator})count')};")
