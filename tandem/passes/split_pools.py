"""split_pools: the largest of a window is the largest of its rows' largest.

    pool_max[kernel=(13, 13)](x)  ->  pool_max[kernel=(1, 13)](pool_max[kernel=(13, 1)](x))

26 comparisons in place of 169, with the same result, where nobody asks for positions. For programs with constant weights
(td.export.freeze): a training step asks for positions.
"""

from __future__ import annotations

import math

from tandem.graph.ir import Graph
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild, use_counts

_WORTH = 9  # elements of a window: a smaller one is as quick at once


@graph_pass
def split_pools(graph: Graph) -> Graph:
    uses = use_counts(graph)

    def visit(node, inputs):
        op = node.op
        if op.name != "pool_max" or len(op.kernel) != 2 or math.prod(op.kernel) <= _WORTH or 1 in op.kernel:
            return None
        if uses.get(node.outputs[1]):
            return None
        value, indices = inputs[0], None
        for axis in (0, 1):
            here = [tuple(n if a == axis else other for a, n in enumerate(field)) for field, other in (
                (op.kernel, 1), (op.stride, 1), (op.padding, 0), (op.dilation, 1))]  # fmt: skip
            size = tuple(n if a == axis else value.shape[2 + a] for a, n in enumerate(op.size))
            value, indices = type(op)(*here, size)(value)
        return value, indices

    return rebuild(graph, visit)
