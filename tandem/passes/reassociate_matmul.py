"""reassociate_matmul: a chain of matrix products is done in the order that takes the fewest operations.

(A @ B) @ v with a vector v is two cheap products as A @ (B @ v). The classic dynamic programme over all orders decides, for the
concrete sizes. Only products of matrices without bias take part whose result nobody else needs (in training, backward needs most of
them).

Another order rounds differently: results agree to the accuracy of the type, not to the bit. TANDEM_SKIP=reassociate_matmul keeps
the order of the program.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.graph.ir import Graph, Value
from tandem.graph.symbolic import hint
from tandem.ops.matmul import Matmul
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild, use_counts

PAYS = 0.8  # of the cost as written: less is not worth other roundings
CALL = 2e4  # what a call costs, in multiplications


@graph_pass
def reassociate_matmul(graph: Graph) -> Graph:
    uses = use_counts(graph)
    inner = {v for n in graph.nodes if _is_product(n.outputs[0] if n.outputs else None)
             for v in n.inputs if _is_product(v) and uses[v] == 1 and v.node.device == n.device}  # fmt: skip
    if not inner:
        return graph

    def visit(node, inputs):
        out = node.outputs[0] if len(node.outputs) == 1 else None
        if not _is_product(out) or out in inner:
            return None
        factors = _factors(out, inner)
        if len(factors) < 3:
            return None
        sizes = [hint(factors[0].shape[0])] + [hint(f.shape[1]) for f in factors]
        best, order = cheapest_order(sizes)
        if best > PAYS * _cost_as_written(out, inner):
            return None
        made = dict(zip(factors, _rebuilt(inputs, node.inputs, inner), strict=True))
        return _multiply([made[f] for f in factors], order, 0, len(factors) - 1)

    def _rebuilt(inputs, before, inner) -> list[Value]:
        result = []
        for new, old in zip(inputs, before, strict=True):
            if old in inner:
                result += _rebuilt(new.node.inputs, old.node.inputs, inner)
            else:
                result.append(new)
        return result

    return rebuild(graph, visit)


def _is_product(value: Value | None) -> bool:
    if value is None or not isinstance(value.op, Matmul) or len(value.node.inputs) != 2:
        return False
    return value.ndim == 2 and not value.node.control


def _factors(value: Value, inner: set[Value]) -> list[Value]:
    return [f for v in value.node.inputs for f in (_factors(v, inner) if v in inner else [v])]


def _product_cost(m: int, k: int, n: int) -> float:
    return m * k * n + CALL


def _cost_as_written(value: Value, inner: set[Value]) -> float:
    a, b = value.node.inputs
    cost = _product_cost(hint(a.shape[0]), hint(a.shape[1]), hint(b.shape[1]))
    return cost + sum(_cost_as_written(v, inner) for v in (a, b) if v in inner)


def cheapest_order(sizes: list[int]) -> tuple[float, dict]:
    """For matrices sizes[i] x sizes[i+1]: the least cost of their product, and where to split each range (i, j) of them."""
    n = len(sizes) - 1
    cost = {(i, i): 0.0 for i in range(n)}
    split: dict[tuple[int, int], int] = {}
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            cost[i, j], split[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + _product_cost(sizes[i], sizes[k + 1], sizes[j + 1]), k)
                for k in range(i, j)
            )
    return cost[0, n - 1], split


def _multiply(factors: list[Value], split: dict, i: int, j: int) -> Value:
    if i == j:
        return factors[i]
    k = split[i, j]
    return F.Matmul()(_multiply(factors, split, i, k), _multiply(factors, split, k + 1, j))
