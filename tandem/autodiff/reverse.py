"""Reverse mode: gradients as more nodes in the graph being built.

Note [Complex gradients]
The gradient of a real loss by a complex z = x + iy is dL/dx + i dL/dy, as in PyTorch. For a holomorphic f that makes it
g * conj(f'(z)). Rules are written as for real numbers, g * f'(z); conj(rule(conj(g))) is then what is wanted.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.graph.ir import Node, Value
from tandem.graph.symbolic import Sym, hint


def backpropagate(
    nodes: list[Node], outputs: list[Value], grads: list[Value | None], inputs: list[Value], apart: bool = False
) -> list[Value | None]:
    """Gradients of the inputs, given those of the outputs. `nodes` are the forward nodes in topological order.

    apart: inputs count as independent of one another: what reaches one does not go on to others that it was computed from.
    """
    ends = set(inputs) if apart else ()
    depends = _depends_on(nodes, inputs)
    parts: dict[Value, list[Value]] = {}  # what has arrived for a value, not yet added up
    for output, g in zip(outputs, grads, strict=True):
        if g is not None and output in depends:
            parts.setdefault(output, []).append(g)
    for node in reversed(nodes):
        if not any(v in parts and v not in ends for v in node.outputs) or not any(v in depends for v in node.inputs):
            continue
        received = [None if v in ends else _total(parts.get(v)) for v in node.outputs]
        if len(node.outputs) == 1:
            g = received[0]
        elif node.op.sparse_grads:
            g = tuple(received)
        else:
            g = tuple(r if r is not None else F.zeros_like(v) for r, v in zip(received, node.outputs, strict=True))
        conjugated = node.op.holomorphic and any(v.dtype.is_complex for v in node.outputs)
        if conjugated:
            g = _conjugate(g)
        if F.region.directs(node.op):
            from tandem.autodiff.regions import region_grad

            results = region_grad(node, received, [v in depends for v in node.inputs])
        else:
            results = node.op.grad(g, *node.inputs, **_asked(node, depends))
        if not isinstance(results, (tuple, list)):
            results = (results,) + (None,) * (len(node.inputs) - 1)
        if conjugated:
            results = _conjugate(tuple(results))
        for value, result in zip(node.inputs, results, strict=True):
            if result is None or value not in depends:
                continue
            if value.ndim == 0 and result.ndim > 0:  # a 0-d operand of an elementwise operator was used at every index
                result = F.Reshape(())(F.Reduce("sum", tuple(range(result.ndim)))(result))
            if result.dtype is not value.dtype:
                result = F.Cast(value.dtype)(result)
            parts.setdefault(value, []).append(result)
    return [_total(parts.get(v)) for v in inputs]


def vjp(fn, inputs: list[Value], grads: list[Value | None]) -> list[Value | None]:
    """Gradients of fn's inputs, given those of its outputs: for operators whose gradient is easiest said as that of a formula."""
    outputs = fn(*inputs)
    outputs = [outputs] if isinstance(outputs, Value) else list(outputs)
    return backpropagate(nodes_between(inputs, outputs), outputs, grads, list(inputs))


def nodes_between(inputs: list[Value], outputs: list[Value]) -> list[Node]:
    """Nodes that outputs need, back to the inputs, in topological order."""
    ends = set(inputs)
    found: set[Node] = set()
    stack = list(outputs)
    while stack:
        value = stack.pop()
        if value in ends or value.node in found:
            continue
        found.add(value.node)
        stack.extend(value.node.inputs)
    return sorted(found, key=lambda node: node.id)


def _asked(node: Node, depends: set[Value]) -> dict:
    """What the gradient rule of a node asks for besides gradients and inputs."""
    asked = {}
    for name in node.op._grad_asks:
        if name == "out":
            asked[name] = node.outputs[0] if len(node.outputs) == 1 else node.outputs
        elif name == "vjp":
            asked[name] = vjp
        elif name == "wanted":
            asked[name] = [v in depends for v in node.inputs]
    return asked


def _conjugate(g):
    if isinstance(g, tuple):
        return tuple(_conjugate(part) for part in g)
    return g if g is None or not g.dtype.is_complex else F.conj(g)


def _total(parts: list[Value] | None) -> Value | None:
    """The sum of what arrived. Gradients of slices that together fill an axis are joined, not added: split
    costs what concat does."""
    if not parts:
        return None
    if len(parts) > 1:
        joined = _join_slices(parts)
        if joined is not None:
            return joined
    total = parts[0]
    for g in parts[1:]:
        total = F.add(total, g)
    return total


def _join_slices(parts: list[Value]) -> Value | None:
    if not all(isinstance(p.op, F.Embed) for p in parts):
        return None
    shape = parts[0].shape
    axis = None
    placed = []
    for p in parts:
        inner = p.node.inputs[0]
        cut = [i for i, (n, m) in enumerate(zip(inner.shape, shape, strict=True)) if not _same(n, m)]
        if len(cut) != 1 or (axis is not None and cut[0] != axis) or any(not _same(s, 1) for s in p.op.steps):
            return None
        axis = cut[0]
        if any(not _same(s, 0) for i, s in enumerate(p.op.starts) if i != axis):
            return None
        placed.append((p.op.starts[axis], inner))
    placed.sort(key=lambda item: hint(item[0]))
    at = 0
    for start, inner in placed:
        if not _same(start, at):
            return None
        at = at + inner.shape[axis]
    return F.Concat(axis)(*(inner for _, inner in placed)) if _same(at, shape[axis]) else None


def _same(a, b) -> bool:
    """Whether two sizes are known to be equal, without a new guard."""
    if isinstance(a, Sym):
        a = a.symbols.resolve(a)
    if isinstance(b, Sym):
        b = b.symbols.resolve(b)
    return a is b or (type(a) is int and type(b) is int and a == b)


def _depends_on(nodes: list[Node], inputs: list[Value]) -> set[Value]:
    """Differentiable values that depend on the inputs."""
    found = set(inputs)
    for node in nodes:
        if any(v in found for v in node.inputs):
            found.update(v for v in node.outputs if v.dtype.is_inexact)
    return found
