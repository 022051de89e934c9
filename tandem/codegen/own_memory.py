"""own_memory: results of a program that nobody else holds."""

from __future__ import annotations

import tandem.ops as F
from tandem.graph.ir import Builder, Graph, Value
from tandem.ops.movement import root


def own_memory(graph: Graph, stored: int):
    """Gives results memory of their own: no input's and no other result's. The last `stored` become variables, so they must be no
    views either. After the passes, which know nothing of this."""
    taken = set()
    with Builder(graph):

        def own(value: Value, dense: bool) -> Value:
            base = root(value)
            if base.op.is_input or (dense and base is not value):
                value = base = F.Copy()(value)
            while base in taken:
                value = base = F.Copy()(value)
            taken.add(base)
            return value

        first = len(graph.outputs) - stored
        graph.outputs = [own(v, i >= first) for i, v in enumerate(graph.outputs)]
