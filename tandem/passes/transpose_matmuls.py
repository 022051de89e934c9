"""transpose_matmuls: a product that is only looked at transposed is computed transposed.

    (a.T @ b).T  ->  b.T @ a

That is the gradient of a weight that was used as `x @ w.T`, as in layers written by hand and tied embeddings: it is then in memory
as the weight is, and the optimiser reads both along rows. Only where an operand is transposed already, so that no more of them are
read by columns than before. The sum may be taken in another order: results agree to the accuracy of the type.
TANDEM_SKIP=transpose_matmuls leaves products as they are.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.graph.ir import Graph, Node, Value
from tandem.ops.matmul import Matmul, is_transposed
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild, use_counts


@graph_pass
def transpose_matmuls(graph: Graph) -> Graph:
    if not any(isinstance(node.op, Matmul) for node in graph.nodes):
        return graph
    uses = use_counts(graph)
    waited = {n for node in graph.nodes for n in node.control}
    found = {node for node in graph.nodes if _fits(node, uses, waited)}
    if not found:
        return graph
    products = {node.inputs[0].node for node in found}
    operands: dict[Node, tuple[Value, ...]] = {}  # of products, in the new graph

    def visit(node, inputs):
        if node in products:
            operands[node] = inputs
        if node not in found:
            return None
        a, b = operands[node.inputs[0].node]
        return F.Matmul()(_transposed(b), _transposed(a))

    return rebuild(graph, visit)


def _fits(node: Node, uses: dict, waited: set) -> bool:
    if len(node.outputs) != 1 or not is_transposed(node.outputs[0]):
        return False
    value = node.inputs[0]
    product = value.node
    if not isinstance(product.op, Matmul) or len(product.inputs) != 2 or uses[value] != 1:
        return False
    if product.control or product in waited or node.control or node in waited or product.device != node.device:
        return False
    return any(is_transposed(v) for v in product.inputs)


def _transposed(x: Value) -> Value:
    if is_transposed(x):
        return x.node.inputs[0]
    return F.Permute((*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))(x)
