"""Branches and loops as C, as src/plan/region.cc runs them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from tandem.codegen.buffer import Buffer
from tandem.codegen.c.ops import TYPE
from tandem.export.c99.text import Text


class Region(NamedTuple):
    text: Text
    step: object  # RegionStep
    parts: list[str]  # functions, by name
    inputs: list[str]
    outputs: list[str]
    scratch: Callable  # (type, elements) -> name of memory for the time that the region runs

    def twins(self, count: int) -> list[str]:
        """Second places for carried values: an iteration reads one and writes the other."""
        return [self.scratch(b.dtype, elements(b)) for b in self.step.outputs[:count]]


def elements(buffer: Buffer) -> int:
    return math.prod(map(int, buffer.shape))


def _call(text: Text, part: str, arguments: list[str]):
    text.line(f"if ({part}({', '.join(arguments)})) return 1;")


def _copy(text: Text, buffer: Buffer, to: str, source: str):
    text.line(f"for (int i = 0; i < {elements(buffer)}; ++i) {to}[i] = {source}[i];")


def cond(r: Region):
    t, index = r.text, f"*({r.inputs[0]})"
    with t.block(f"switch ((int){index})"):
        for i, part in enumerate(r.parts):
            t.line(f"case {i}: if ({part}({', '.join([*r.inputs[1:], *r.outputs])})) return 1; break;")
        t.line("default: return 1;")


def _carried(r: Region) -> list[str]:
    names = []
    for i, (buffer, start) in enumerate(zip(r.step.inputs[: r.step.op.carried], r.inputs, strict=False)):
        r.text.line(f"const {TYPE[buffer.dtype]}* carry{i} = {start};")
        names.append(f"carry{i}")
    return names


def scan(r: Region):
    t, op, step = r.text, r.step.op, r.step
    length, carried = int(op.length), op.carried
    if length <= 0:
        for i in range(carried):
            _copy(t, step.outputs[i], r.outputs[i], r.inputs[i])
        return
    twins, carry = r.twins(carried), _carried(r)
    with t.block(f"for (int step = 0; step < {length}; ++step)"):
        t.line(f"const int64_t position = {f'{length - 1} - step' if op.reverse else 'step'};")
        for i in range(carried):  # the last iteration writes the results themselves
            t.line(
                f"{TYPE[step.outputs[i].dtype]}* next{i} = ({length - 1} - step) % 2 == 0 ? {r.outputs[i]} : {twins[i]};"
            )

        def row(name: str, buffer: Buffer) -> str:
            return f"{name} + position * {int(buffer.strides[0])}"

        end = carried + op.scanned
        rows = [row(r.inputs[i], step.inputs[i]) for i in range(carried, end)]
        made = [row(r.outputs[i], step.outputs[i]) for i in range(carried, len(r.outputs))]
        following = [f"next{i}" for i in range(carried)]
        _call(t, r.parts[0], [*carry, *rows, *r.inputs[end:], "&position", *following, *made])
        for i in range(carried):
            t.line(f"carry{i} = next{i};")


def while_(r: Region):
    t, op, step = r.text, r.step.op, r.step
    carried, consts = op.carried, r.inputs[op.carried :]
    t.line("int64_t iteration = 0;")
    limit = f"iteration < {int(op.maximum)}" if op.maximum is not None else ""
    if len(r.parts) == 1:  # a loop over single elements is one kernel, which counts by itself
        t.line("bool goes_on = true;")
        t.line("int64_t count = 0;")
        carry = _carried(r)
        with t.block(f"while (goes_on{f' && {limit}' if limit else ''})"):
            _call(t, r.parts[0], [*carry, *consts, "&iteration", *r.outputs[:carried], "&count", "&goes_on"])
            t.line("iteration = count;")
            for i, name in enumerate(carry):
                t.line(f"{name} = {r.outputs[i]};")
        t.line(f"*({r.outputs[carried]}) = iteration;")
        return
    twins, carry = r.twins(carried), _carried(r)
    with t.block(f"for (; {limit}; ++iteration)"):
        t.line("bool goes_on = false;")
        _call(t, r.parts[0], [*carry, *consts, "&iteration", "&goes_on"])
        t.line("if (!goes_on) break;")
        for i in range(carried):
            t.line(f"{TYPE[step.outputs[i].dtype]}* next{i} = iteration % 2 == 0 ? {r.outputs[i]} : {twins[i]};")
        _call(t, r.parts[1], [*carry, *consts, "&iteration", *(f"next{i}" for i in range(carried))])
        for i, name in enumerate(carry):
            t.line(f"{name} = next{i};")
    for i in range(carried):
        with t.block(f"if (carry{i} != {r.outputs[i]})"):
            _copy(t, step.outputs[i], r.outputs[i], f"carry{i}")
    t.line(f"*({r.outputs[carried]}) = iteration;")
