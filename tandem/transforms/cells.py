"""Operator functions of cells: calls that take from one another, many times over, as one.

See Note [Cells] in src/autobatch/cells.h.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import tandem.ops as F
from tandem.errors import InternalError, UnsupportedError
from tandem.graph.ir import Type, Value, current_builder
from tandem.graph.symbolic import hint
from tandem.ops.define import Role, make_function
from tandem.ops.region import region_graph
from tandem.tracing.program import _replay
from tandem.transforms.batching import Batcher
from tandem.transforms.grouped import NUMBERS, PARAMETERS

if TYPE_CHECKING:
    from tandem.tracing.operator_plan import CapturedPlan


class InsideView(NamedTuple):
    """A view of what a call before, inside the cell, gives (src/autobatch/run_cells.cc)."""

    call: int
    output: int
    shape: tuple[int, ...] | None = None  # None: all of it
    strides: tuple[int, ...] = ()
    offset: int = 0  # in elements
    dtype: int = 0  # its code


class CellCall(NamedTuple):
    """A call inside a cell (src/autobatch/group_call.cc). Without a plan it gives what it takes: tensors that the runtime has
    joined (Note [Joined rows] in src/autobatch/join.cc)."""

    plan: CapturedPlan | None
    operands: tuple[int | InsideView, ...]  # tensors from outside by their number, or from a call before
    outputs: tuple[bool, ...]  # which results are wanted


def cell_function(described: tuple, flags: tuple[bool, ...]):
    """The operator function of cells as one. described: a CellCall each, as plain tuples. flags: which tensors from outside differ
    between cells, and so have an axis more, in front.

    Its arguments are the tensors from outside; numbers, call by call; integers, and last how many cells there are.
    """
    calls = [CellCall(plan, tuple(map(_source, operands)), outputs) for plan, operands, outputs in described]
    name = next(call.plan.name for call in reversed(calls) if call.plan is not None)

    def fn(tensors, numbers, ints):
        count = ints[-1]
        for t, flag in zip(tensors, flags, strict=True):
            if flag and t.shape[0] != count:  # asking teaches that these sizes are one
                raise InternalError(name, "rows of a cell are missing")
        values = [*tensors, *numbers]
        batched = [*flags, *[False] * len(numbers)]
        types = [
            Type(v.dtype, v.shape[1:], v.type.weak) if flag else v.type for v, flag in zip(values, batched, strict=True)
        ]

        def example(*inputs):
            outside, rest = inputs[: len(tensors)], iter(inputs[len(tensors) :])
            whole_numbers = iter([1 if i == 1 else i for i in ints[:-1]])
            results: list = []
            wanted = []
            for plan, operands, outputs in calls:
                if plan is None:
                    results.append([_operand(operands[0], outside, results)])
                    wanted += results[-1] if outputs[0] else []
                    continue
                sources = iter(operands)
                known = {}
                for _, spec, position in plan.arguments:
                    if spec.kind == "tensor":
                        known[position] = _operand(next(sources), outside, results)
                    elif spec.kind in NUMBERS:
                        known[position] = next(rest)
                    elif spec.kind == "int":
                        known[position] = next(whole_numbers)
                results.append(_replay(current_builder(), plan, known, []))
                wanted += [v for v, is_wanted in zip(results[-1], outputs, strict=True) if is_wanted]
            return wanted

        graph = region_graph(current_builder().graph.symbols, name, types, example)
        batcher = Batcher(count, "same")
        return tuple(batcher.full(*made) for made in batcher.graph(graph, values, batched))

    digests = ["joined" if call.plan is None else call.plan.digest for call in calls]
    digest = None
    if None not in digests:
        digest = repr(("cell", digests, [call[1:] for call in calls], flags))
    return make_function(name, fn, PARAMETERS, role=Role(whole=True, lazy_sums=True), digest=digest)


def _source(described) -> int | InsideView:
    return described if isinstance(described, int) else InsideView(*described)


def _operand(source: int | InsideView, outside, results: list) -> Value:
    if isinstance(source, int):
        return outside[source]
    value = results[source.call][source.output]
    if source.shape is None:
        return value
    if int(value.dtype.code) != source.dtype:
        raise UnsupportedError("autobatch", "a view of another type inside a cell")
    return view_of(value, source.shape, source.strides, source.offset)


def view_of(value: Value, shape: tuple, strides: tuple, offset: int) -> Value:
    """What this geometry sees of a value whose elements lie one after the other."""
    base = tuple(hint(n) for n in value.shape)
    steps = _contiguous(base)
    if offset == 0 and shape == base:
        same = all(a == b for a, b, n in zip(strides, steps, base, strict=True) if n > 1)
        if same:
            return value
    numel = 1
    for n in base:
        numel *= n
    wanted = 1
    for n in shape:
        wanted *= n
    dense = all(a == b for a, b, n in zip(strides, _contiguous(shape), shape, strict=True) if n > 1)
    if offset == 0 and wanted == numel and dense:
        return F.reshape(value, shape)
    return _sliced(value, base, steps, shape, strides, offset)


def _contiguous(shape: tuple) -> tuple:
    steps, step = [], 1
    for n in reversed(shape):
        steps.append(step)
        step *= max(n, 1)
    return tuple(reversed(steps))


def _sliced(value: Value, base: tuple, steps: tuple, shape: tuple, strides: tuple, offset: int) -> Value:
    """A slice of each axis, then axes in another order."""
    axis_of: dict[int, int] = {}  # axis of the view: axis of the value
    for i, (n, stride) in enumerate(zip(shape, strides, strict=True)):
        if n == 1:
            continue
        fitting = [
            a for a, step in enumerate(steps)
            if stride > 0 and base[a] > 1 and a not in axis_of.values() and stride % step == 0
            and (n - 1) * (stride // step) < base[a]
        ]  # fmt: skip
        if not fitting:
            raise UnsupportedError("autobatch", "a view that is no slice inside a cell")
        axis_of[i] = max(fitting, key=lambda a: steps[a])
    of_axis = {a: i for i, a in axis_of.items()}
    ranges = []
    for a, (n, step) in enumerate(zip(base, steps, strict=True)):
        start, offset = divmod(offset, step) if n > 1 else (0, offset)
        i = of_axis.get(a)
        size, stride = (1, 1) if i is None else (shape[i], strides[i] // step)
        if start + (size - 1) * stride >= max(n, 1):
            raise UnsupportedError("autobatch", "a view that is no slice inside a cell")
        ranges.append((start, size, stride))
    if offset:
        raise UnsupportedError("autobatch", "a view that is no slice inside a cell")
    for a, (start, size, stride) in enumerate(ranges):
        if (start, size, stride) != (0, base[a], 1):
            value = F.slice_axis(value, a, start, size, stride)
    order = [axis_of[i] for i in sorted(axis_of)]
    rest = [a for a in range(len(base)) if a not in of_axis]
    if [*order, *rest] != list(range(len(base))):
        value = F.permute(value, (*order, *rest))
    return F.reshape(value, shape)
