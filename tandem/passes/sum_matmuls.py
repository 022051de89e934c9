"""sum_matmuls: a sum of products becomes one product over a longer inner axis (gradients of weights that are used again and again).

    a @ b + c @ d + e @ f  ->  concat(a, c, e) @ concat(b, d, f)

A recurrent cell's weights have a product of a few rows for each time step, which is written to memory and read again to be added
up. Joined along the inner axis the operands are copied instead, so that it pays where they are smaller than the products are:
k (m + n) <= m n. Copies are often none: operands are computed in their place, or are slices of one tensor. The sum is taken in
another order: results agree to the accuracy of the type. TANDEM_SKIP=sum_matmuls keeps products apart.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.graph.ir import Graph, Node, Value
from tandem.graph.symbolic import hint
from tandem.ops.arithmetic import Add
from tandem.ops.matmul import Matmul
from tandem.ops.movement import Permute
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild
from tandem.passes.simplify import concat_of_slices


@graph_pass
def sum_matmuls(graph: Graph) -> Graph:
    sums = _sums(graph)
    if not sums:
        return graph
    wanted = {leaf.node for products, _ in sums.values() for leaf in products}
    operands: dict[Node, tuple[Value, ...]] = {}  # of products, in the new graph
    made: dict[Value, Value] = {}  # other terms, likewise
    others = {leaf for _, rest in sums.values() for leaf in rest}

    def visit(node, inputs):
        if node in wanted:
            operands[node] = inputs
        made.update((old, new) for old, new in zip(node.inputs, inputs) if old in others)
        found = sums.get(node)
        if found is None:
            return None
        products, rest = found
        total = _joined([operands[leaf.node] for leaf in products])
        for leaf in rest:
            total = F.Add()(made[leaf], total)
        return total

    return rebuild(graph, visit)


def _sums(graph: Graph) -> dict[Node, tuple[list[Value], list[Value]]]:
    """Additions that end a sum of several products: the products, which nobody else reads, and the other terms."""
    readers: dict[Value, int] = {}
    for node in graph.nodes:
        for v in node.inputs:
            readers[v] = readers.get(v, 0) + 1
    for v in (*graph.outputs, *(v for _, v in graph.mutations)):
        readers[v] = readers.get(v, 0) + 1
    waited = {n for node in graph.nodes for n in node.control}
    terms: dict[Value, list[Value]] = {}  # of sums that are not ended yet
    found = {}
    for node in graph.nodes:
        if not isinstance(node.op, Add) or node.control or node in waited or node.outputs[0].ndim != 2:
            continue
        inner = [v for v in node.inputs if v in terms and readers[v] == 1 and v.node.device == node.device]
        mine = [t for v in node.inputs for t in (terms[v] if v in inner else [v])]
        terms[node.outputs[0]] = mine
        products = [v for v in mine if _joins(v, node, readers, waited)]
        for v in inner:
            found.pop(v.node, None)
        if len(products) > 1:
            found[node] = products, [v for v in mine if v not in products]
    return found


def _joins(value: Value, end: Node, readers: dict, waited: set) -> bool:
    """Whether a term of the sum that ends there is a product that had better be joined with others."""
    node = value.node
    if (
        not isinstance(node.op, Matmul)
        or len(node.inputs) != 2
        or node.control
        or node in waited
        or readers[value] != 1
    ):
        return False
    a, b = node.inputs
    if a.ndim != 2 or b.ndim != 2 or node.device != end.device or value.dtype != end.outputs[0].dtype:
        return False
    (m, n), k = map(hint, value.shape), hint(a.shape[1])
    return value.shape == end.outputs[0].shape and k * (m + n) <= m * n


def _joined(products: list[tuple[Value, ...]]) -> Value:
    left, right = zip(*products, strict=True)
    return F.Matmul()(_along(left, 1), _along(right, 0))


def _along(parts: tuple[Value, ...], axis: int) -> Value:
    """Matrices one after the other; if all are transposed, what they are transposes of."""
    if all(isinstance(p.op, Permute) and p.op.axes == (1, 0) for p in parts):
        return F.Permute((1, 0))(_along(tuple(p.node.inputs[0] for p in parts), 1 - axis))
    joined = F.Concat(axis)(*parts)
    whole = concat_of_slices(joined)
    return joined if whole is None else whole
