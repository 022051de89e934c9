"""split_pools: where nobody asks for positions, the largest of a window is the largest of its rows' largest.

    pool_max[kernel=(3, 3)](x)    ->  pool_max_values[kernel=(3, 3)](x)
    pool_max[kernel=(13, 13)](x)  ->  pool_max_values[kernel=(1, 13)](pool_max_values[kernel=(13, 1)](x))

Positions are not written, and there are 26 comparisons in place of 169, with the same result. For programs with constant weights
(td.export.freeze): a training step asks for positions.
"""

from __future__ import annotations

import math

from tandem.graph.ir import Graph
from tandem.ops.pool import PoolMax, PoolMaxValues
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild, use_counts

_WORTH = 9  # elements of a window: a smaller one is as quick at once


@graph_pass
def split_pools(graph: Graph) -> Graph:
    uses = use_counts(graph)

    def visit(node, inputs):
        op = node.op
        if not isinstance(op, PoolMax) or uses.get(node.outputs[1]):
            return None
        fields = (op.kernel, op.stride, op.padding, op.dilation)
        if len(op.kernel) != 2 or math.prod(op.kernel) <= _WORTH or 1 in op.kernel:
            value = PoolMaxValues(*fields, op.size)(inputs[0])
            return value, value  # nothing reads the positions
        value = inputs[0]
        for axis in (0, 1):
            here = [
                tuple(n if a == axis else other for a, n in enumerate(field))
                for field, other in zip(fields, (1, 1, 0, 1), strict=True)
            ]
            size = tuple(n if a == axis else value.shape[2 + a] for a, n in enumerate(op.size))
            value = PoolMaxValues(*here, size)(value)
        return value, value

    return rebuild(graph, visit)
