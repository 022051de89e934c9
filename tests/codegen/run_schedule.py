"""Runs a Schedule on NumPy memory: evaluates sizes, allocates, calls kernels through ctypes in several parts."""

from __future__ import annotations

import ctypes
import itertools
import math

import numpy as np

from tandem.codegen import Buffer, KernelStep, Layout, Schedule, lower
from tandem.graph import Builder, Graph, Type
from tandem.graph.symbolic import Sym
from tandem.ops.define import add_input

MARGIN, FILL = 64, 0xA5  # elements around allocated memory that must keep this byte
FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def evaluate(d, values: list[int]) -> int:
    """The size expression d with symbol i worth values[i]."""
    if not isinstance(d, Sym):
        return int(d)
    total = 0
    for monomial, coefficient in d.terms.items():
        for atom in monomial:
            if atom[0] == "sym":
                coefficient *= values[atom[1]]
                continue
            a, b = evaluate(atom[1], values), evaluate(atom[2], values)
            coefficient *= {"floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "min": min, "max": max}[
                atom[0]
            ](a, b)
        total += coefficient
    return total


class Trace:
    """A graph being built on example arrays: sizes other than 1 are symbols, as in an eager call."""

    def __init__(self):
        self.graph = Graph()
        self.builder = Builder(self.graph)
        self.layouts: list = []
        self.arrays: list[np.ndarray] = []

    def __enter__(self):
        self.builder.__enter__()
        return self

    def __exit__(self, *exc):
        self.builder.__exit__(*exc)

    def input(self, array: np.ndarray):
        from tandem import dtypes

        symbols, position = self.graph.symbols, len(self.arrays)
        shape = tuple(
            1 if n == 1 else symbols.new(n, ("size", position, axis), not_one=True)
            for axis, n in enumerate(array.shape)
        )
        strides = [s // array.itemsize for s in array.strides]
        order = tuple(sorted(range(array.ndim), key=lambda a: (-strides[a], a)))
        dense, step = [0] * array.ndim, 1
        for axis in reversed(order):
            dense[axis] = step
            step *= array.shape[axis]
        is_dense = array.size > 0 and all(n == 1 or s == d for n, s, d in zip(array.shape, strides, dense))
        if (is_dense and order == tuple(range(array.ndim))) or (array.size == 0 and array.flags.c_contiguous):
            layout = None
        elif is_dense:
            symbolic, step = [0] * array.ndim, 1
            for axis in reversed(order):
                symbolic[axis] = step
                step = step * shape[axis]
            layout = Layout(tuple(symbolic), order[-1], order)
        else:
            symbolic = tuple(
                s if s in (0, 1) else symbols.new(s, ("stride", position, axis), signed=True)
                for axis, s in enumerate(strides)
            )
            unit = next((a for a, s in enumerate(strides) if s == 1 and array.shape[a] != 1), None)
            layout = Layout(symbolic, unit, None)
        self.layouts.append(layout)
        self.arrays.append(array)
        return add_input(self.builder, Type(dtypes.as_dtype(array.dtype), shape))


def build(function, arrays, mutate=None):
    """Traces function(*values) -> value or values; `mutate` maps an input position to the index of an output stored there."""
    with Trace() as trace:
        values = [trace.input(a) for a in arrays]
        result = function(*values)
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    if mutate:
        trace.graph.mutations = [(position, outputs[i]) for position, i in mutate.items()]
        outputs = [v for i, v in enumerate(outputs) if i not in mutate.values()]
    trace.graph.outputs = outputs
    return trace


def values_for(graph: Graph, arrays) -> list[int]:
    found = []
    for kind, position, axis in graph.symbols.origins:
        array = arrays[position]
        found.append(array.shape[axis] if kind == "size" else array.strides[axis] // array.itemsize)
    return found


def check_guards(graph: Graph, values):
    for relation, expression in graph.symbols.guards:
        d = evaluate(expression, values)
        assert {"==": d == 0, "!=": d != 0, "<": d < 0, ">=": d >= 0}[relation], (relation, expression)


class Memory:
    """NumPy arrays behind Buffers."""

    def __init__(self, arrays, values):
        self.arrays, self.values, self.made = arrays, values, {}
        self.blocks: list = []

    def check_margins(self):
        """Nothing wrote before or after what was allocated."""
        for raw, margin in self.blocks:
            assert (raw[:margin] == FILL).all() and (raw[len(raw) - margin :] == FILL).all()

    def array(self, buffer: Buffer) -> np.ndarray:
        found = self.made.get(id(buffer))
        if found is not None:
            return found
        shape = tuple(evaluate(d, self.values) for d in buffer.shape)
        strides = tuple(evaluate(d, self.values) for d in buffer.strides)
        size = buffer.dtype.itemsize
        if buffer.kind == "input":
            found = self.arrays[buffer.position]
            assert not found.size or all(n <= 1 or s * size == t for n, s, t in zip(shape, strides, found.strides)), (
                buffer,
                found.strides,
            )
        elif buffer.kind == "alloc":
            extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if math.prod(shape) else 0
            assert extent == math.prod(shape), "allocated buffers are dense"
            block = np.full((extent + 64) * size, 0xA5, np.uint8)[32 * size : (32 + extent) * size].view(
                buffer.dtype.numpy
            )
            found = np.lib.stride_tricks.as_strided(block, shape, [s * size for s in strides])
        else:
            base = self.array(buffer.base)
            offset = evaluate(buffer.offset, self.values)
            start = base.__array_interface__["data"][0] + offset * size
            count = 1 + sum(abs((n - 1) * s) for n, s in zip(shape, strides)) if math.prod(shape) else 1
            raw = (ctypes.c_char * (count * size)).from_address(start)
            found = np.lib.stride_tricks.as_strided(
                np.frombuffer(raw, buffer.dtype.numpy), shape, [s * size for s in strides]
            )
        self.made[id(buffer)] = found
        return found


def run_kernel(step: KernelStep, memory: Memory, parts: int = 1):
    function = FUNCTION(step.kernel.address())
    pointers = (ctypes.c_void_p * max(len(step.buffers), 1))(
        *[memory.array(b).__array_interface__["data"][0] for b in step.buffers]
    )
    ints = (ctypes.c_int64 * max(len(step.ints), 1))(*[evaluate(d, memory.values) for d in step.ints])
    extent = evaluate(step.extent, memory.values)
    cuts = sorted({extent * k // parts for k in range(parts + 1)})
    for begin, end in itertools.pairwise(cuts):
        function(ctypes.addressof(pointers), ctypes.addressof(ints), begin, end)


def run(schedule: Schedule, graph: Graph, arrays, libraries=None, parts: int = 1) -> list[np.ndarray]:
    values = values_for(graph, arrays)
    check_guards(graph, values)
    memory = Memory(arrays, values)
    for step in schedule.steps:
        if isinstance(step, KernelStep):
            run_kernel(step, memory, parts)
            memory.check_margins()
        else:
            libraries[step.routine](
                step, [memory.array(b) for b in step.inputs], [memory.array(b) for b in step.outputs],
                [evaluate(d, values) for d in step.ints],
            )  # fmt: skip
    return [memory.array(schedule.buffer_of[v]).copy() for v in graph.outputs]


def compute(function, *arrays, **options):
    """Traces, lowers and runs function on the arrays; a tuple of results for several outputs."""
    trace = build(function, arrays)
    schedule = lower(trace.graph, trace.layouts)
    results = run(schedule, trace.graph, arrays, **options)
    return results[0] if len(results) == 1 else tuple(results)
