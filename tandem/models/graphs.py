"""Networks over graphs given as lists of edges: GCN (Kipf and Welling, 2017) and GAT (Velickovic et al., 2018).

edges: (2, m) whole numbers, from edges[0] to edges[1]; give both directions of an undirected graph.
"""

from __future__ import annotations

import itertools

import tandem as td
from tandem import nn
from tandem.nn import functional as F


def with_loops(edges, nodes: int):
    """The edges and one more from every node to itself."""
    own = td.arange(nodes)
    return td.cat([edges, td.stack([own, own])], 1)


def segment_softmax(scores, segment, count: int):
    """softmax over the entries (m, h) that have the same segment (m) among `count`."""
    index = segment.unsqueeze(-1).expand(*scores.shape)
    largest = td.full((count, scores.shape[-1]), -float("inf"), dtype=scores.dtype).scatter_reduce(
        0, index, scores.detach(), "amax"
    )
    raised = td.exp(scores - largest[segment])
    total = td.zeros(count, scores.shape[-1], dtype=scores.dtype).index_add(0, segment, raised)
    return raised / total[segment]


class GCNConv(nn.Module):
    """x: (nodes, a), edges: (2, m) -> (nodes, b): sums over neighbours, each edge weighted by the degrees of its ends."""

    def __init__(self, channels: int, out: int):
        super().__init__()
        self.lin = nn.Linear(channels, out, bias=False)
        self.bias = nn.Parameter(td.zeros(out))
        nn.init.xavier_uniform_(self.lin.weight)

    def forward(self, x, edges):
        nodes = x.shape[0]
        source, target = with_loops(edges, nodes)
        degree = td.zeros(nodes, dtype=x.dtype).index_add(0, target, td.ones(target.shape[0], dtype=x.dtype))
        root = degree.rsqrt()
        weight = (root[source] * root[target]).unsqueeze(-1)
        y = self.lin(x)
        return td.zeros(nodes, y.shape[-1], dtype=x.dtype).index_add(0, target, y[source] * weight) + self.bias


class GATConv(nn.Module):
    """x: (nodes, a), edges: (2, m) -> (nodes, heads * b), or (nodes, b) averaged over heads: neighbours weighted by attention."""

    def __init__(
        self, channels: int, out: int, heads: int = 1, concat: bool = True, slope: float = 0.2, dropout: float = 0.0
    ):
        super().__init__()
        self.heads, self.out, self.concat, self.slope = heads, out, concat, slope
        self.lin = nn.Linear(channels, heads * out, bias=False)
        self.att_src, self.att_dst = (nn.Parameter(td.zeros(1, heads, out)) for _ in range(2))
        self.bias = nn.Parameter(td.zeros(heads * out if concat else out))
        self.dropout = nn.Dropout(dropout)
        for p in (self.lin.weight, self.att_src, self.att_dst):
            nn.init.xavier_uniform_(p)

    def forward(self, x, edges):
        nodes = x.shape[0]
        source, target = with_loops(edges, nodes)
        y = self.lin(x).reshape(nodes, self.heads, self.out)
        scores = (y * self.att_src).sum(-1)[source] + (y * self.att_dst).sum(-1)[target]
        weights = self.dropout(segment_softmax(F.leaky_relu(scores, self.slope), target, nodes))
        z = td.zeros(nodes, self.heads, self.out, dtype=x.dtype).index_add(0, target, y[source] * weights.unsqueeze(-1))
        return (z.reshape(nodes, -1) if self.concat else z.mean(1)) + self.bias


class GCN(nn.Module):
    """x: (nodes, features), edges: (2, m) -> scores (nodes, classes)"""

    def __init__(self, features: int, hidden: int, num_classes: int, layers: int = 2, dropout: float = 0.5):
        super().__init__()
        sizes = [features, *[hidden] * (layers - 1), num_classes]
        self.convs = nn.ModuleList([GCNConv(a, b) for a, b in itertools.pairwise(sizes)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, edges):
        for i, conv in enumerate(self.convs):
            x = conv(self.dropout(x), edges)
            if i + 1 < len(self.convs):
                x = x.relu()
        return x


class GAT(nn.Module):
    """x: (nodes, features), edges: (2, m) -> scores (nodes, classes)"""

    def __init__(self, features: int, hidden: int = 8, num_classes: int = 7, heads: int = 8, dropout: float = 0.6):
        super().__init__()
        self.first = GATConv(features, hidden, heads, dropout=dropout)
        self.second = GATConv(hidden * heads, num_classes, 1, concat=False, dropout=dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, edges):
        x = F.elu(self.first(self.dropout(x), edges))
        return self.second(self.dropout(x), edges)
