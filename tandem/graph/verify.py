"""verify: what every graph must satisfy. Run after the passes while TANDEM_CHECK is on; if one is wrong, they run once more to name
the pass at fault (passes/pipeline.py)."""

from __future__ import annotations

from tandem.errors import InternalError, TandemError
from tandem.graph.ir import Graph, Node, Type
from tandem.graph.symbolic import hint
from tandem.switches import CHECK


def verify(graph: Graph, after: str = "", known: set[Node] = frozenset()):
    """Raises InternalError unless nodes come after what they read and wait for, satisfy their operators' rules, types are what
    operators infer, and the graph's inputs, outputs and mutations belong to it. Nodes in `known` were verified before (nodes never
    change), so only their order is looked at. After a pass, which makes nodes of nodes that satisfied the rules, and has their
    types inferred as it makes them, both are asked for again with TANDEM_CHECK=2 only: a tenth of the time of compiling."""
    rules = not after or CHECK >= 2
    where = f"after {after}: " if after else ""
    defined = set()
    before: set[Node] = set()
    for node in graph.nodes:
        for n in node.control:
            if n not in before:
                raise _wrong(node, f"{where}waits for {n.op!r}, which comes later or not at all")
        before.add(node)
        for v in node.inputs:
            if v not in defined:
                raise _wrong(node, f"{where}uses a value of {v.op!r}, which comes later or not at all")
        if node not in known:
            if rules:
                try:
                    check_node(node)
                except (InternalError, TandemError) as error:  # another type, or a rule of the operator
                    raise _wrong(node, f"{where}{error.rule}") from None
            if hasattr(node.op, "graphs"):  # a region: nothing inside may look outside
                for part in node.op.graphs():
                    verify(part, after)
        if not defined.isdisjoint(node.outputs):
            raise _wrong(node, f"{where}is in the graph twice")
        defined.update(node.outputs)
    for position, v in enumerate(graph.inputs):
        if v not in defined or not v.op.is_input or v.op.position != position:
            raise InternalError(graph.name, f"{where}input {position} is {v.op!r}, not the input node of that position")
    if sum(n.op.is_input for n in graph.nodes) != len(graph.inputs):
        raise InternalError(graph.name, f"{where}there are input nodes that are no inputs of the graph")
    for v in graph.outputs:
        if v is not None and v not in defined:
            raise InternalError(graph.name, f"{where}an output is {v!r}, which no node of the graph makes")
    for position, v in graph.mutations:
        if v not in defined or not 0 <= position < len(graph.inputs):
            raise InternalError(graph.name, f"{where}input {position} is to take {v!r}, which is not of this graph")
        if not same_type(v.type, graph.inputs[position].type):
            raise InternalError(
                graph.name, f"{where}input {position} is {graph.inputs[position].type!r}; no place for {v.type!r}"
            )


def check_node(node: Node):
    """Raises unless the node satisfies its operator's rules (ops/rules.py), and is of the types that the operator infers."""
    op, given = node.op, [v.type for v in node.inputs]
    op.check_rules(given)
    types = op.infer(*given)
    types = (types,) if isinstance(types, Type) else types
    made = tuple(v.type for v in node.outputs)
    if len(types) != len(made) or not all(map(same_type, types, made)):
        raise InternalError(op.name, f"its inputs make it {types}, but it is {made}")


def _wrong(node: Node, message: str) -> InternalError:
    return InternalError(node.op.name, message + (f" (made at {node.source})" if node.source else ""))


def same_type(a: Type, b: Type) -> bool:
    """Whether two types agree for concrete sizes. Unlike `==` this writes no guard."""
    if a.dtype is not b.dtype or len(a.shape) != len(b.shape):
        return False
    return a.shape is b.shape or all([m is n or hint(m) == hint(n) for m, n in zip(a.shape, b.shape)])  # noqa: C419
