"""A ring of nodes."""

import tandem as td
from tandem.nn import graph


def ring(n=12):
    index = td.tensor([[*range(n), *range(n)], [*((i + 1) % n for i in range(n)), *((i + 2) % n for i in range(n))]])
    return graph.GraphData(
        x=td.arange(float(n))[:, None], edge_index=index, edge_attr=td.arange(2.0 * n), y=td.arange(n)
    )
