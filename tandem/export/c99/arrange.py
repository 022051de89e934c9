"""Joining, copying, scattering, running sums and sorting as C loops."""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.c.ops import TYPE
from tandem.errors import UnsupportedError
from tandem.export.c99.call import Call, Operand
from tandem.export.c99.text import Text, offset


def _counters(prefix: str, shape) -> list[str]:
    return [f"{prefix}{i}" for i in range(len(shape))]


def _at(x: Operand, counters) -> str:
    return f"{x.name}[{offset(*zip(counters, x.strides, strict=True))}]"


def copy_elements(t: Text, source: Operand, target: Operand):
    with t.loops(_counters("i", target.shape), target.shape) as counters:
        t.line(f"{_at(target, counters)} = {_at(source, counters)};")


def copy(call: Call):
    copy_elements(call.text, call.inputs[0], call.outputs[0])


def concat(call: Call):
    t, out, start, axis = call.text, call.outputs[0], 0, call.op.axis
    for x in call.inputs:
        with t.loops(_counters("i", x.shape), x.shape) as counters:
            place = offset((start * out.strides[axis], 1), *zip(counters, out.strides, strict=True))
            t.line(f"{out.name}[{place}] = {_at(x, counters)};")
        start += x.shape[axis]


def check_index(call: Call):
    low = f"-{call.op.bound}" if call.op.negative else "0"
    _check(call, lambda x: f"(int64_t){x} < {low} || (int64_t){x} >= {call.op.bound}")


def check_divisor(call: Call):
    _check(call, lambda x: f"{x} == 0")


def check_weights(call: Call):
    _check(call, lambda x: f"{x} != 0")


def _check(call: Call, wrong):
    """Fails where wrong(element), a condition in C, holds."""
    t, x = call.text, call.inputs[0]
    call.fails = True
    with t.loops(_counters("i", x.shape), x.shape) as counters:
        t.line(f"if ({wrong(_at(x, counters))}) return 1;")
    t.line("return 0;")


def scatter(call: Call):
    call.require_real()
    t, out = call.text, call.outputs[0]
    base, updates, *indices = call.inputs
    call.fails = True
    with t.block(f"if ({out.name} != {base.name})"):
        copy_elements(t, base, out)
    rest = out.shape[len(indices) :]
    accumulator = t.accumulator(out.dtype)
    with t.loops(_counters("i", indices[0].shape), indices[0].shape) as counters, t.block(""):
        for k, x in enumerate(indices):
            t.line(f"const int64_t at{k} = {_at(x, counters)};")
            t.line(f"if (at{k} < 0 || at{k} >= {out.shape[k]}) return 1;")
        with t.loops(_counters("j", rest), rest) as inner, t.block(""):
            places = [*(f"at{k}" for k in range(len(indices))), *inner]
            x = t.load(out.dtype, _at(updates, (*counters, *inner)))
            target = _at(out, places)
            if call.op.mode == "set":
                t.line(f"{target} = {t.narrow(out.dtype, x)};")
            else:
                kind = TYPE[accumulator]
                t.line(f"const {kind} old = {t.load(out.dtype, target)}, update = {x};")
                mode = {"add": "sum", "mul": "prod"}.get(call.op.mode, call.op.mode)
                t.line(f"{target} = {t.narrow(out.dtype, t.ops.combine(mode, accumulator, 'old', 'update'))};")
    t.line("return 0;")


def cumulative(call: Call):
    call.require_real()
    t, op, x, out = call.text, call.op, call.inputs[0], call.outputs[0]
    if op.kind == "logsum":
        raise UnsupportedError("export.c", "logcumsumexp has no C routine")
    accumulator = t.accumulator(x.dtype)
    others = [n if a != op.axis else 1 for a, n in enumerate(x.shape)]
    with t.loops(_counters("i", others), others) as counters, t.block(""):
        size = x.shape[op.axis] if x.shape else 1
        wide = dtypes.float64 if accumulator is dtypes.float32 and op.kind in ("sum", "prod") else accumulator
        t.line(f"{TYPE[wide]} total = {t.ops.identity(op.kind, wide)};")
        with t.block(f"for (int k = 0; k < {size}; ++k)"):
            place = f"{size - 1} - k" if op.reverse else "k"
            at = [place if a == op.axis else c for a, c in enumerate(counters)]
            t.line(f"total = {t.ops.combine(op.kind, wide, 'total', t.load(x.dtype, _at(x, at)))};")
            t.line(f"{_at(out, at)} = {t.narrow(out.dtype, f'({TYPE[accumulator]})total')};")


def linear_scan(call: Call):
    call.require_real()
    t, op, (a, b), out = call.text, call.op, call.inputs, call.outputs[0]
    accumulator = t.accumulator(b.dtype)
    others = [n if i != op.axis else 1 for i, n in enumerate(b.shape)]
    with t.loops(_counters("i", others), others) as counters, t.block(""):
        size = b.shape[op.axis] if b.shape else 1
        t.line(f"{TYPE[accumulator]} total = 0;")
        with t.block(f"for (int k = 0; k < {size}; ++k)"):
            place = f"{size - 1} - k" if op.reverse else "k"
            at = [place if i == op.axis else c for i, c in enumerate(counters)]
            factor, term = t.load(a.dtype, _at(a, at)), t.load(b.dtype, _at(b, at))
            t.line(f"total = {t.ops.combine('prod', accumulator, 'total', factor)};")
            t.line(f"total = {t.ops.combine('sum', accumulator, 'total', term)};")
            t.line(f"{_at(out, at)} = {t.narrow(out.dtype, 'total')};")


def _ordered(call: Call, axis: int, count: int, descending: bool):
    """The first `count` of a row in order, stable, NaN last (first if descending), by insertion into what was found so far."""
    call.require_real()
    t, x = call.text, call.inputs[0]
    values, indices = (call.outputs + [None])[:2]
    accumulator = t.accumulator(x.dtype)
    call.scratch = (dtypes.int64, count)
    size = x.shape[axis] if x.shape else 1
    others = [n if a != axis else 1 for a, n in enumerate(x.shape)]
    with t.loops(_counters("i", others), others) as counters, t.block(""):

        def place(k: str) -> list[str]:
            return [k if a == axis else c for a, c in enumerate(counters)]

        def element(k: str) -> str:
            return t.load(x.dtype, _at(x, place(k)))

        t.line("int found = 0;")
        with t.block(f"for (int k = 0; k < {size}; ++k)"):
            t.line(f"const {TYPE[accumulator]} x = {element('k')};")
            t.line("int at = found;")
            with t.block("for (; at > 0; --at)"):
                t.line(f"const {TYPE[accumulator]} y = {element('scratch[at - 1]')};")
                before = "x > y" if descending else "x < y"
                if x.dtype.kind == "float":  # NaN is the largest
                    before += " || (x != x && y == y)" if descending else " || (y != y && x == x)"
                t.line(f"if (!({before})) break;")
                t.line(f"if (at < {count}) scratch[at] = scratch[at - 1];")
            t.line(f"if (at < {count}) scratch[at] = k;")
            t.line(f"if (found < {count}) ++found;")
        with t.block(f"for (int k = 0; k < {count}; ++k)"):
            if values is not None:
                t.line(f"{_at(values, place('k'))} = {_at(x, place('scratch[k]'))};")
            if indices is not None:
                t.line(f"{_at(indices, place('k'))} = scratch[k];")


def sort(call: Call):
    x = call.inputs[0]
    _ordered(call, call.op.axis, x.shape[call.op.axis] if x.shape else 1, call.op.descending)


def topk(call: Call):
    _ordered(call, call.op.axis, call.op.k, call.op.largest)
