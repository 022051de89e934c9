"""A loss function as a graph of whole tensors: what pipelines and plans are made from.

Note [Buffers]
A function that is only traced may not write into tensors of its own, but modules do: running statistics of batch norm. While it
is traced, the buffers of its modules are values that it has made, which it may overwrite; what they are afterwards is a result of
the graph, and is written into the buffers after each run. Modules are found in what the function refers to.
"""

from __future__ import annotations

import dataclasses
import functools
import types

import tandem.ops as F
from tandem import _runtime
from tandem.control.body import RANDOM, spec, take_down
from tandem.errors import ShapeError, UnsupportedError, ValueRangeError
from tandem.export.trace import graph_of
from tandem.graph.ir import Graph, Value
from tandem.nn.module import Module
from tandem.tensors.constructors import asarray


@dataclasses.dataclass
class Traced:
    """graph: inputs are arguments, tensors (weights, constants, buffers), numbers of random streams; outputs are the loss and what
    buffers are afterwards."""

    graph: Graph
    arguments: int
    tensors: list  # for the inputs after the arguments
    written: list  # the buffers that outputs 1, 2, ... are written into
    random: list[tuple[str, int]]  # kind and offset of each of the last inputs
    draws: int

    @property
    def weights(self) -> list[Value]:
        """Inputs that gradients are wanted of."""
        own = self.graph.inputs[self.arguments :]
        return [v for v, t in zip(own, self.tensors, strict=False) if t.requires_grad]

    def numbers(self, micro: int = 0, state=None) -> list[int]:
        """What the random inputs are for a micro-batch, from the generator's state before the step."""
        seed, offset = state or _runtime.default_generator().get_state()
        return [seed if kind == "seed" else offset + micro * self.draws + delta for kind, delta in self.random]

    def advance(self, micro_batches: int = 1) -> tuple:
        """The generator's state; it goes on as if so many micro-batches had been computed."""
        generator = _runtime.default_generator()
        seed, offset = generator.get_state()
        generator.set_state((seed, offset + self.draws * micro_batches))
        return seed, offset


def trace_loss(op: str, fn, args) -> Traced:
    """fn(*args) -> loss, as a graph. It runs once, on tensors without values."""
    tensors = [asarray(a) for a in args]
    places = _buffers(fn)
    buffers = list({id(b): b for m, name in places for b in [m._buffers[name]]}.values())
    generator = _runtime.default_generator()
    state = generator.get_state()
    try:
        wrapped = functools.partial(_with_buffers, fn, len(tensors), buffers, places)
        taken = take_down(op, wrapped, [spec(t, False) for t in (*tensors, *buffers)]).taken
    finally:
        generator.set_state(state)
    given = [*tensors, *buffers]
    graph = graph_of(taken, [(t.dtype, t.shape) for t in given], [()] * len(given), gradients=True, random=True)
    loss, count = graph.outputs[0], len(tensors)
    found = len(graph.outputs) - len(buffers)
    if found != 1 or loss.shape or not loss.dtype.is_inexact:
        shown = ", ".join(repr(v.type) for v in graph.outputs[:found])
        raise ShapeError(op, f"the function gives {shown}; it must give the loss, one number")
    if graph.mutations:
        raise UnsupportedError(op, "the function writes into tensors that are no buffers of its modules")
    if not any(t.requires_grad for t in taken.consts):
        raise ValueRangeError(op, "no parameter that requires a gradient takes part in the loss")
    after = dict(zip(graph.inputs[count:], graph.outputs[1:], strict=False))
    written = [(b, after[v]) for v, b in zip(graph.inputs[count:], buffers, strict=False) if not _same(after[v], v)]
    graph.outputs = [loss, *(v for _, v in written)]
    first = next((value for kind, value in taken.numbers if kind == "offset"), 0)
    random = [(kind, value - first) for kind, value in taken.numbers if kind in RANDOM]
    return Traced(graph, count, [*buffers, *taken.consts], [b for b, _ in written], random, taken.draws)


def _same(after: Value, before: Value) -> bool:
    """Whether a buffer is what it was."""
    while after is not before and after.node.op.name in ("copy", "contiguous", "stop_gradient", "clone"):
        after = after.node.inputs[0]
    return after is before


def _with_buffers(fn, count: int, buffers: list, places: list, *values):
    """What fn gives, and what the buffers are afterwards."""
    before = [m._buffers[name] for m, name in places]
    own = {id(b): F.clone(v) for b, v in zip(buffers, values[count:], strict=True)}
    try:
        for (m, name), b in zip(places, before, strict=True):
            m._buffers[name] = own[id(b)]
        result = fn(*values[:count])
        after = {id(b): m._buffers[name] for (m, name), b in zip(places, before, strict=True)}
    finally:
        for (m, name), b in zip(places, before, strict=True):
            m._buffers[name] = b
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    return (*results, *(after[id(b)] for b in buffers))


def _buffers(fn) -> list[tuple[Module, str]]:
    """Where the modules that a function refers to have buffers that they may write while they train."""
    found: dict = {}
    for module in _modules(fn):
        for part in module.modules():
            if part.training:
                found.update({(id(part), name): (part, name) for name, b in part._buffers.items() if b is not None})
    return list(found.values())


def _modules(fn) -> list[Module]:
    """The modules that a function refers to: by itself, its closure, its defaults, or names of its module."""
    found: dict[int, Module] = {}
    seen: set[int] = set()
    stack = [fn]
    while stack:
        x = stack.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, Module):
            found[id(x)] = x
        elif isinstance(x, types.MethodType):
            stack += [x.__self__, x.__func__]
        elif isinstance(x, functools.partial):
            stack += [x.func, *x.args, *x.keywords.values()]
        elif isinstance(x, types.FunctionType) and not (x.__module__ or "").startswith("tandem."):
            stack += [c.cell_contents for c in x.__closure__ or () if _filled(c)]
            stack += x.__defaults__ or ()
            stack += [x.__globals__[n] for n in x.__code__.co_names if n in x.__globals__]
        elif isinstance(x, (list, tuple)) and len(x) < 1000:
            stack += x
        elif isinstance(x, dict) and len(x) < 1000:
            stack += x.values()
        elif hasattr(x, "__wrapped__"):
            stack.append(x.__wrapped__)
    return list(found.values())


def _filled(cell) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True
