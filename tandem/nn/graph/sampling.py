"""Parts of large graphs: neighbours drawn at random around some nodes. Loaders of such parts are in tandem/data/graphs.py."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.autograd.modes import no_grad
from tandem.nn.graph.edges import Edges


@no_grad()
def sample_neighbors(edges: Edges, nodes, fanout: int, generator=None):
    """Up to `fanout` of the edges that lead to each of `nodes`, drawn without replacement; all with -1.

    nodes: (k) -> numbers of edges in the list of `edges`, and for each the position in `nodes` that it leads to
    """
    start = edges.structure.start
    first, degree = start[nodes], start[nodes + 1] - start[nodes]
    owner = F.repeat_interleave(F.arange(nodes.shape[0], device=nodes.device), degree)
    rank = F.arange(owner.shape[0], device=nodes.device) - (F.cumsum(degree, 0) - degree)[owner]
    if fanout < 0 or owner.shape[0] == 0:
        return first[owner] + rank, owner
    # In random order within each node; the first so many of it are a sample.
    drawn = F.argsort(F.rand((owner.shape[0],), generator=generator))
    drawn = drawn[F.argsort(owner[drawn], stable=True)]
    kept = F.sort(drawn[rank < fanout])
    kept = kept[0] if isinstance(kept, tuple) else kept
    return first[owner[kept]] + rank[kept], owner[kept]


@no_grad()
def sample_subgraph(edges: Edges, seeds, fanouts, generator=None):
    """The neighbourhood of `seeds`: for each number in fanouts one more step outwards.

    -> nodes (k) of the whole graph, seeds first; edge_index (2, m) among them, by their place in `nodes`; numbers (m) of the edges
    in the list of `edges`
    """
    place = F.full((max(edges.shape),), -1, dtype=dtypes.int64, device=seeds.device)
    nodes = F.astype(seeds, dtypes.int64)
    place[nodes] = F.arange(nodes.shape[0], device=nodes.device)
    frontier, before, sources, targets, numbers = nodes, 0, [], [], []
    for fanout in fanouts:
        chosen, owner = sample_neighbors(edges, frontier, fanout, generator)
        reached = edges.source[chosen]
        fresh = F.unique(reached[place[reached] < 0])
        place[fresh] = F.arange(fresh.shape[0], device=nodes.device) + nodes.shape[0]
        sources.append(place[reached])
        targets.append(owner + before)
        numbers.append(chosen)
        before, frontier = nodes.shape[0], fresh
        nodes = F.concat([nodes, fresh], 0)
    return nodes, F.stack([F.concat(sources, 0), F.concat(targets, 0)], 0), F.concat(numbers, 0)
