"""Networks over graphs given as lists of edges: GCN (Kipf and Welling, 2017) and GAT (Velickovic et al., 2018).

edges: (2, m) whole numbers, from edges[0] to edges[1]; give both directions of an undirected graph.
"""

from __future__ import annotations

import itertools

from tandem import nn
from tandem.nn import functional as F
from tandem.nn.graph import GATConv, GCNConv


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
