"""Graphs without complex numbers, for files whose runtimes have none: each is two real values, its parts.

Elementwise operators are written by their own scalar expressions, which compute with parts (tandem/codegen/pairs.py); what only
rearranges or adds is applied to each part; Fourier transforms become `FourierParts`.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import UnsupportedError
from tandem.export.composition import composition, made_of
from tandem.export.fourier import transform
from tandem.export.trace import Exported
from tandem.graph.ir import Builder, Graph, Node, Type, Value, source_scope
from tandem.ops.complexes import AsComplex, AsReal, Complex, Part
from tandem.ops.define import Elementwise, Movement, add_input
from tandem.ops.fft.transforms import Fft, Irfft, Rfft
from tandem.ops.movement import take_slice
from tandem.ops.prepare import full_expand
from tandem.ops.region import Region
from tandem.passes.eliminate_dead import eliminate_dead


class Pair(NamedTuple):
    re: Value
    im: Value


def in_parts(graph: Graph) -> Graph:
    """The same function: complex inputs are taken apart where they come in, complex results put together at the end."""
    if not any(v.dtype.is_complex for n in graph.nodes for v in (*n.inputs, *n.outputs)):
        return graph
    result = Graph(graph.symbols, graph.name)
    _runtime.enter_trace()
    try:
        with Builder(result) as builder:
            result.inputs = [add_input(builder, v.type) for v in graph.inputs]
            given = [_apart(v) if v.dtype.is_complex else v for v in result.inputs]
            made = _written(builder, graph, given)
            result.outputs = [Complex()(*v) if isinstance(v, Pair) else v for v in made]
    finally:
        _runtime.exit_trace()
    return eliminate_dead(result)


def real_weights(exported: Exported) -> Exported:
    """The same function in parts, with two weights for each that is complex."""
    weights = {}
    for name, t in exported.weights.items():
        weights |= (
            {f"{name}.real": t.detach().real, f"{name}.imag": t.detach().imag} if t.dtype.is_complex else {name: t}
        )
    if len(weights) > len(exported.weights):
        exported = dataclasses.replace(exported, graph=_with_pairs(exported), weights=weights)
    return dataclasses.replace(exported, graph=in_parts(exported.graph))


def _with_pairs(exported: Exported) -> Graph:
    graph, count = exported.graph, len(exported.arguments)
    result = Graph(graph.symbols, graph.name)
    _runtime.enter_trace()
    try:
        with Builder(result) as builder:
            made, copies = {}, {}
            for i, v in enumerate(graph.inputs):
                if i < count or not v.dtype.is_complex:
                    made[v] = add_input(builder, v.type)
                else:
                    part = Type(dtypes.REAL_PART[v.dtype], v.shape)
                    made[v] = Complex()(add_input(builder, part), add_input(builder, part))
            for node in graph.nodes:
                if not node.op.is_input:
                    new = builder.again(node, tuple(made[v] for v in node.inputs), copies)
                    made.update(zip(node.outputs, new.outputs, strict=True))
            result.outputs = [made[v] for v in graph.outputs]
    finally:
        _runtime.exit_trace()
    return result


def _apart(x: Value) -> Pair:
    return Pair(Part(0)(x), Part(1)(x))


def _written(builder: Builder, graph: Graph, given: list) -> list:
    """The graph's results, for inputs of which the complex ones are pairs; so are its complex results."""
    made: dict[Value, Value | Pair] = dict(zip(graph.inputs, given, strict=True))
    copies: dict = {}
    for node in graph.nodes:
        if node.op.is_input:
            continue
        operands = [made[v] for v in node.inputs]
        if any(v.dtype.is_complex for v in (*node.inputs, *node.outputs)):
            with source_scope(node.source):
                results = _in_parts(builder, graph, node, operands)
        else:
            results = builder.again(node, tuple(operands), copies).outputs
        made.update(zip(node.outputs, results, strict=True))
    return [made[v] for v in graph.outputs]


def _in_parts(builder: Builder, graph: Graph, node: Node, operands: list) -> list:
    """What a node with complex operands or results gives."""
    op = node.op
    if isinstance(op, Region) or node.control:
        raise UnsupportedError(
            "export", f"{op.name} has complex operands", fix="give it their parts: td.view_as_real(x)"
        )
    if isinstance(op, F.Constant):
        part, value = dtypes.REAL_PART[op.dtype], complex(op.value)
        return [Pair(F.Constant(value.real, part)(), F.Constant(value.imag, part)())]
    if isinstance(op, (Part, AsReal, AsComplex, Complex)):
        return [_between(node, operands)]
    if isinstance(op, (Fft, Rfft, Irfft)):
        return [_transformed(node, operands[0])]
    if isinstance(op, Elementwise):
        return [_elementwise(node, operands)]
    if isinstance(op, Movement) or _EACH.get(op.name, lambda op: False)(op):
        return _each(builder, node, operands)
    if made_of(node) is None:
        raise UnsupportedError("export", f"{op.name} of complex numbers cannot be written with real ones")
    return _written(builder, composition(node, graph.symbols), operands)


# Operators that do the same to both parts: what is linear, and takes no number from elsewhere.
_EACH = {
    "concat": lambda op: True,
    "gather": lambda op: True,
    "rows": lambda op: True,
    "pick": lambda op: True,
    "roll": lambda op: True,
    "scatter": lambda op: op.mode in ("set", "add"),
    "reduce": lambda op: op.kind == "sum",
    "cumulative": lambda op: op.kind == "sum",
}


def _each(builder: Builder, node: Node, operands: list) -> list:
    """An operator applied to real parts, and to imaginary ones."""
    parts = [
        builder.add(node.op, tuple(x[k] if isinstance(x, Pair) else x for x in operands)).outputs for k in range(2)
    ]
    return [Pair(re, im) if v.dtype.is_complex else re for v, re, im in zip(node.outputs, *parts, strict=True)]


def _between(node: Node, operands: list):
    """Operators between complex numbers and their parts."""
    op, (x, *rest), out = node.op, operands, node.outputs[0]
    if isinstance(op, Part):
        return x[op.index]
    if isinstance(op, Complex):
        return Pair(full_expand(x, out.shape), full_expand(rest[0], out.shape))
    if isinstance(op, AsReal):
        return F.stack([x.re, x.im], -1)
    return Pair(*(F.select(x, -1, k) for k in range(2)))


class OfParts(Elementwise):
    """An elementwise operator with two operands for each complex one; of a complex result, one part."""

    name = "of_parts"
    _fields = ("op", "types", "part")
    op: Elementwise
    types: tuple
    part: int | None

    def result_dtype(self, *inputs):
        made = self.op.result_dtype(*self.types)
        return made if self.part is None else dtypes.REAL_PART[made]

    def body(self, b, *scalars):
        given = iter(scalars)
        whole = [b.complex(next(given), next(given)) if t.is_complex else next(given) for t in self.types]
        made = self.op.body(b, *whole)
        return made if self.part is None else (b.imag if self.part else b.real)(made)


def _elementwise(node: Node, operands: list):
    flat = [x for v in operands for x in (v if isinstance(v, Pair) else (v,))]
    types, made = tuple(v.dtype for v in node.inputs), node.outputs[0].dtype
    if not made.is_complex:
        return OfParts(node.op, types, None)(*flat)
    return Pair(*(OfParts(node.op, types, k)(*flat) for k in range(2)))


def _transformed(node: Node, x):
    op = node.op
    if isinstance(op, Fft):
        pair = x if isinstance(x, Pair) else Pair(x, F.zeros_like(x))
        for axis in op.axes:
            pair = Pair(*transform(*pair, axis, op.forward, op.norm))
        return pair
    n = node.inputs[0].shape[op.axis] if isinstance(op, Rfft) else op.n
    kept = n // 2 + 1
    if isinstance(op, Rfft):
        made = transform(x, F.zeros_like(x), op.axis, True, op.norm)
        half = Pair(*(take_slice(p, {op.axis: (0, 1, kept)}) for p in made))
        return Pair(*(_inner(p, op.axis, n, 2.0) for p in half)) if op.doubled else half
    if op.halved:
        x = Pair(*(_inner(p, op.axis, n, 0.5) for p in x))
    others = n - kept
    ends = [take_slice(p, {op.axis: (others, -1, others)}) for p in x]
    whole = F.concat([x.re, ends[0]], op.axis), F.concat([x.im, -ends[1]], op.axis)
    return transform(*whole, op.axis, False, op.norm)[0]


def _inner(x: Value, axis: int, n, factor: float) -> Value:
    """x with this factor at the elements that stand for two; Note [Half spectra] in tandem/ops/fft/transforms.py."""
    at = F.Iota((x.shape[axis],), 0, dtypes.int64)()
    twice = (at > 0) & (at * 2 < n)
    shape = tuple(x.shape[a] if a == axis else 1 for a in range(x.ndim))
    return x * F.reshape(F.where(twice, factor, 1.0).astype(x.dtype), shape)
