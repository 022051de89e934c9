"""jvp: forward mode, how results move when arguments do.

Note [Forward mode]
An operator's reverse rule is linear in the gradient that it is given. Differentiating the rule by that gradient, in reverse again,
gives the transpose of the transpose: the forward rule. So every operator has one, to any order, without a second set of rules; the
gradient itself is a stand-in that nothing depends on in the end, and what was built on the way falls away as dead code.
"""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.autodiff.reverse import backpropagate, nodes_between
from tandem.control.regions import Draws
from tandem.errors import AutogradError, ShapeError
from tandem.graph.ir import Graph, Node, Type, Value, current_builder
from tandem.ops.region import copy_nodes, region_graph
from tandem.passes.eliminate_dead import eliminate
from tandem.transforms.traced import call, take
from tandem.tree import flatten, unflatten

_INT = Type(dtypes.int64, ())


def tangents_of(node: Node, tangents: list[Value | None]) -> list[Value | None]:
    """How a node's outputs move when its inputs move by `tangents` (None: not at all)."""
    builder = current_builder()
    moving = [(v, t) for v, t in zip(node.inputs, tangents, strict=True) if t is not None]
    outputs = [v for v in node.outputs if v.dtype.is_inexact]
    given = [builder.add(F.Incoming(i, v.type), ()).outputs[0] for i, v in enumerate(outputs)]
    # One input may be used twice: a copy of each, so that each has its own gradient.
    pulled = backpropagate([node], outputs, given, list(dict.fromkeys(v for v, _ in moving)))
    by_value = dict(zip(dict.fromkeys(v for v, _ in moving), pulled, strict=True))
    seen, ends, pushes = set(), [], []
    for v, t in moving:
        if v in seen or by_value[v] is None:
            continue
        seen.add(v)
        ends.append(by_value[v])
        pushes.append(t)
    if not ends:
        return [None] * len(node.outputs)
    pushed = backpropagate(nodes_between(given, ends), ends, pushes, given)
    made = dict(zip(outputs, pushed, strict=True))
    return [made.get(v) for v in node.outputs]


def push_forward(
    graph: Graph, tangents: list[Value | None], inputs: list[Value]
) -> tuple[list[Value], list[Value | None]]:
    """graph's outputs for these inputs, and how they move."""
    made: dict[Value, Value] = dict(zip(graph.inputs, inputs, strict=True))
    moves: dict[Value, Value] = {v: t for v, t in zip(graph.inputs, tangents, strict=True) if t is not None}
    for node in graph.nodes:
        if node.op.is_input:
            continue
        copy_nodes([node], made)
        incoming = [moves.get(v) for v in node.inputs]
        if any(t is not None for t in incoming):
            new = made[node.outputs[0]].node
            for v, t in zip(node.outputs, tangents_of(new, incoming), strict=True):
                if t is not None:
                    moves[v] = t
    return [made[v] for v in graph.outputs], [moves.get(v) for v in graph.outputs]


def jvp(fn, primals, tangents, *, strict: bool = False, has_aux: bool = False):
    """fn's value at `primals`, and how it moves when they move by `tangents`: the Jacobian times the tangents, in one pass.

    primals and tangents: tuples (or containers inside them) of tensors with the same shapes. With has_aux, fn gives (value, other),
    and other is a third result. strict is PyTorch's; a result that does not depend on the primals has a tangent of zeros.

    >>> td.jvp(lambda x: x * x, (td.tensor([1.0, 3.0]),), (td.tensor([1.0, 0.5]),))
    (tensor([1., 9.]), tensor([2., 3.]))
    """
    leaves, structure = flatten(tuple(primals))
    moves, move_structure = flatten(tuple(tangents))
    if structure != move_structure:
        raise ShapeError(
            "jvp", f"primals are {structure!r} and tangents are {move_structure!r}; they must have the same containers"
        )
    for x, t in zip(leaves, moves, strict=True):
        if not isinstance(x, _runtime.Tensor) or not isinstance(t, _runtime.Tensor):
            raise AutogradError("jvp", "primals and tangents must be tensors")
        if not x.dtype.is_inexact:
            raise AutogradError("jvp", f"a primal is {x.dtype}; only floating tensors can be differentiated by")
        if tuple(x.shape) != tuple(t.shape):
            raise ShapeError("jvp", f"a tangent of shape {tuple(t.shape)} for a primal of shape {tuple(x.shape)}")
    count = len(leaves)

    def one(*values):
        return fn(*unflatten(structure, values))

    # As if somebody differentiated by them: gradients taken inside fn must be recorded, since they move too.
    before = _runtime.set_grad_enabled(True)
    try:
        result, state = take("jvp", one, [(x.dtype, list(x.shape), True) for x in leaves], leaves)
    finally:
        _runtime.set_grad_enabled(before)

    def build(body, tensors, consts, generator):
        symbols = current_builder().graph.symbols
        types = [*(t.type for t in tensors[:count]), *(c.type for c in consts), *[_INT, _INT] * body.random]
        used = 0

        def whole(*values):
            nonlocal used
            draws = Draws(*values[-2:]) if body.random else None
            made = body.trace(list(values[:count]), list(values[count : count + len(consts)]), draws)
            used = draws.used if draws is not None else 0
            return made

        graph = region_graph(symbols, "function", types, whole)
        operands = [*tensors[:count], *consts]
        if body.random:
            operands += [generator.seed, generator.take(used)]
        moved = tensors[count:]

        def both(*values):
            inputs, given = list(values[: len(operands)]), list(values[len(operands) :])
            for x, t in zip(inputs, given, strict=False):
                for a, b in zip(x.shape, t.shape, strict=True):
                    if a != b:
                        raise ShapeError("jvp", "tangents must have the shapes of the primals")
            values, pushed = push_forward(graph, [*given, *[None] * (len(inputs) - count)], inputs)
            return [*values, *(F.zeros_like(v) if t is None else t for v, t in zip(values, pushed, strict=True))]

        together = eliminate(region_graph(symbols, "jvp", [v.type for v in (*operands, *moved)], both))
        made = dict(zip(together.inputs, [*operands, *moved], strict=True))
        for node in together.nodes:
            if (
                node.op.name == "incoming"
            ):  # a rule that is linear, but not written so: its derivative is the same everywhere
                made[node.outputs[0]] = F.ones_like(node.outputs[0])
            else:
                copy_nodes([node], made)
        return [made[v] for v in together.outputs]

    moves = [t if t.dtype is x.dtype else F.astype(t, x.dtype) for x, t in zip(leaves, moves, strict=True)]
    made = call("jvp", result, [*leaves, *moves], state, (), build)
    half = len(result.leaves)
    value, moved = unflatten(result.structure, made[:half]), unflatten(result.structure, made[half:])
    if has_aux:
        if not isinstance(value, tuple) or len(value) != 2:
            raise AutogradError("jvp", "with has_aux the function must give a pair")
        return value[0], moved[0], value[1]
    return value, moved


def linearize(fn, *primals):
    """fn's value at primals, and the function that tells how it moves: push(*tangents) is jvp(fn, primals, tangents)[1].

    >>> y, push = td.linearize(lambda x: x * x, td.tensor(3.0))
    >>> push(td.tensor(1.0))
    tensor(6.)
    """
    return fn(*primals), lambda *tangents: jvp(fn, primals, tangents)[1]
