"""merge_matmuls: products with the same left operand become one wide product, cut up afterwards (queries, keys and values).

    x @ a, x @ b, x @ c  ->  y = x @ concat(a, b, c); y[:, :n], y[:, n:2n], y[:, 2n:]

Only for matrices that lie side by side already, as slices of one tensor (`w[:d]`, `w[d:2*d]`, ...), and products large enough.
Separate matrices are inputs, which may change, so they would have to be put side by side at every run. Measured on two cores of
Zen 3: alone, three products of (256, 64) with (64, 64) take 148 us merged against 215; but in a training step of six transformer
blocks of width 64 the copies, and kernels that now read rows with gaps, take more than the calls did: 5.9 ms against 5.5. Slices of
one tensor under attention, microseconds:

    rows, k, n          apart   merged
    512, 384, 384        3551     3485
    256, 128, 128         409      377
    64, 64, 64            104      144   (not merged)

A wider product may add up in another order: results agree to the accuracy of the type. TANDEM_SKIP=merge_matmuls keeps them apart.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.graph.ir import Graph, Node, Value
from tandem.graph.symbolic import hint
from tandem.ops.matmul import Matmul
from tandem.ops.movement import Permute, Slice, root
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild
from tandem.passes.simplify import concat_of_slices, same

SMALL = 2_000_000  # multiplications of one product; below, rows with gaps cost more than calls


@graph_pass
def merge_matmuls(graph: Graph) -> Graph:
    group_of: dict[Node, list[Node]] = {}
    for group in _groups(graph):
        for node in group:
            group_of[node] = group
    if not group_of:
        return graph
    parts: dict[Node, Value] = {}

    def visit(node, inputs):
        group = group_of.get(node)
        if group is None:
            return None
        if node not in parts:
            parts.update(zip(group, _wide(group, inputs[0]), strict=True))
        return parts[node]

    return rebuild(graph, visit)


def _groups(graph: Graph) -> list[list[Node]]:
    found: dict[tuple, list[Node]] = {}
    for node in graph.nodes:
        if (
            isinstance(node.op, Matmul)
            and not node.control
            and node.outputs[0].ndim == 2
            and all(root(v).op.is_input for v in node.inputs[1:])
        ):
            transposed = isinstance(node.inputs[1].op, Permute)
            found.setdefault((node.inputs[0], len(node.inputs), transposed, node.device), []).append(node)
    return [group for group in found.values() if len(group) > 1 and _pays(group)]


def _pays(group: list[Node]) -> bool:
    x = group[0].inputs[0]
    rows, k = hint(x.shape[0]), hint(x.shape[1])
    columns = max(hint(node.inputs[1].shape[1]) for node in group)
    return rows * k * columns >= SMALL and _side_by_side(group)


def _side_by_side(group: list[Node]) -> bool:
    """Whether the matrices are slices of one tensor, one after the other."""
    matrices = [_unturned(node.inputs[1]) for node in group]
    axis = 0 if isinstance(group[0].inputs[1].op, Permute) else 1
    if any(not isinstance(m.op, Slice) for m in matrices):
        return False
    at = matrices[0].op.starts[axis]
    for m in matrices:
        if m.node.inputs[0] is not matrices[0].node.inputs[0] or not same(m.op.starts[axis], at):
            return False
        at = at + m.shape[axis]
    return True


def _unturned(matrix: Value) -> Value:
    return matrix.node.inputs[0] if isinstance(matrix.op, Permute) else matrix


def _wide(group: list[Node], x: Value) -> list[Value]:
    transposed = isinstance(group[0].inputs[1].op, Permute)  # as linear layers have them
    matrices = [_again(_unturned(node.inputs[1])) for node in group]
    joined = _join(matrices, 0 if transposed else 1)
    biases = [_join([_again(node.inputs[2]) for node in group], 0)] if len(group[0].inputs) == 3 else []
    y = F.Matmul()(x, F.Permute((1, 0))(joined) if transposed else joined, *biases)
    result, start = [], 0
    for node in group:
        n = node.outputs[0].shape[1]
        result.append(F.Slice((0, start), (1, 1), (y.shape[0], n))(y))
        start = start + n
    return result


def _join(values: list[Value], axis: int) -> Value:
    joined = F.Concat(axis)(*values)
    whole = concat_of_slices(joined)
    return joined if whole is None else whole


def _again(value: Value) -> Value:
    """A chain of movements of an input, in the graph being built, which may not have come to it yet."""
    return value if value.op.is_input else value.op(*[_again(v) for v in value.node.inputs])
