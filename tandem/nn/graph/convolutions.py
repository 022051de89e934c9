"""Layers over graphs: GCN, GraphSAGE, GAT, GIN. Rows of x are nodes; edges (2, m) lead from edge_index[0] to edge_index[1]."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem.errors import ValueRangeError
from tandem.nn import init
from tandem.nn.dropout import Dropout
from tandem.nn.graph.edges import Edges, edges_of
from tandem.nn.graph.message_passing import aggregate, neighbours
from tandem.nn.linear import Linear
from tandem.nn.module import Module
from tandem.nn.parameter import Parameter
from tandem.ops.define import op
from tandem.ops.edges import EdgeGather
from tandem.tensors.constructors import zeros


def _zeros(*shape):
    return Parameter(zeros(shape))


class GCNConv(Module):
    """Sums over neighbours, each edge weighted by the degrees of its ends (Kipf and Welling, 2017).

    x: (nodes, in_channels), edge_index: (2, m), edge_weight: (m) -> (nodes, out_channels). add_self_loops: every node is its own
    neighbour too, once, with the weight of the edge to itself that it has, or 1; normalize: weights are divided by the roots of
    both degrees.

    >>> td.nn.GCNConv(4, 2)(td.ones(3, 4), td.tensor([[0, 1], [1, 2]])).shape
    (3, 2)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        add_self_loops: bool = True,
        normalize: bool = True,
        bias: bool = True,
    ):
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.add_self_loops, self.normalize = add_self_loops, normalize
        self.lin = Linear(in_channels, out_channels, bias=False)
        init.xavier_uniform_(self.lin.weight)
        if bias:
            self.bias = _zeros(out_channels)
        else:
            self.register_parameter("bias", None)

    def forward(self, x, edge_index, edge_weight=None):
        edges = edges_of(edge_index, x.shape[0], None, self.add_self_loops)
        weights = edge_weight
        if weights is not None and not isinstance(edge_index, Edges):
            weights = edges.listed(edge_weight, 1.0, weights=True)
        if self.normalize:
            weights = edges.symmetric_weights(weights, x.dtype)
        elif weights is None:
            weights = edges.ones(x.dtype)
        # The sum over neighbours is made where rows are shorter.
        if self.out_channels <= self.in_channels:
            made = neighbours(self.lin(x), edges, weights)
        else:
            made = self.lin(neighbours(x, edges, weights))
        return made if self.bias is None else made + self.bias

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}"


class SAGEConv(Module):
    """A node's own features and an aggregate of its neighbours', each through a matrix (Hamilton et al., 2017).

    x: (nodes, in_channels), or a pair (sources, targets) of which the targets come first -> (nodes, out_channels). aggr: "mean",
    "sum", "max" or "min"; project: features go through a layer with relu first; normalize: rows get length 1.

    >>> td.nn.SAGEConv(4, 2)(td.ones(3, 4), td.tensor([[0, 1], [1, 2]])).shape
    (3, 2)
    """

    def __init__(self, in_channels: int, out_channels: int, aggr: str = "mean", normalize: bool = False, root_weight: bool = True,
                 project: bool = False, bias: bool = True):  # fmt: skip
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.aggr, self.normalize, self.project = aggr, normalize, project
        if project:
            self.lin = Linear(in_channels, in_channels)
        self.lin_l = Linear(in_channels, out_channels, bias=bias)
        self.lin_r = Linear(in_channels, out_channels, bias=False) if root_weight else None

    def forward(self, x, edge_index):
        source, target = x if isinstance(x, tuple) else (x, x)
        edges = edges_of(edge_index, source.shape[0], target.shape[0])
        if self.project:
            source = F.relu(self.lin(source))
        if self.aggr in ("sum", "mean") and self.out_channels < self.in_channels:
            made = neighbours(F.linear(source, self.lin_l.weight), edges, None, self.aggr)
            made = made if self.lin_l.bias is None else made + self.lin_l.bias
        else:
            made = self.lin_l(neighbours(source, edges, None, self.aggr))
        if self.lin_r is not None:
            made = made + self.lin_r(target)
        return F.normalize(made, 2.0, -1) if self.normalize else made

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, aggr={self.aggr!r}"


@op(hidden=True)
def attention_scores(of_source: Tensor, of_target: Tensor, of_edge: Tensor | None, places: Tensors, slope):
    """of_source: (sources, h), of_target: (targets, h), of_edge: (m, h) -> (m, h); places: target, start, numbers and source,
    start_t, order_t of the edges"""
    target, start, numbers, source, start_t, order_t = places
    total = EdgeGather()(of_source, source, start_t, order_t) + EdgeGather()(of_target, target, start, numbers)
    total = total if of_edge is None else total + of_edge
    return F.leaky_relu(total, slope)


class GATConv(Module):
    """Sums over neighbours weighted by attention, which is a function of both ends of an edge (Velickovic et al., 2018).

    x: (nodes, in_channels), edge_index: (2, m), edge_attr: (m, edge_dim) -> (nodes, heads * out_channels), or (nodes,
    out_channels), the mean over heads, without concat. dropout: of attention weights. add_self_loops: every node gets an edge to
    itself instead of those that it has; fill_value: its features, "mean" of those of the edges from others.

    >>> td.nn.GATConv(4, 2, heads=3)(td.ones(3, 4), td.tensor([[0, 1], [1, 2]])).shape
    (3, 6)
    """

    def __init__(self, in_channels: int, out_channels: int, heads: int = 1, concat: bool = True, negative_slope: float = 0.2,
                 dropout: float = 0.0, add_self_loops: bool = True, edge_dim: int | None = None, fill_value="mean",
                 bias: bool = True):  # fmt: skip
        super().__init__()
        self.in_channels, self.out_channels, self.heads, self.concat = in_channels, out_channels, heads, concat
        self.negative_slope, self.add_self_loops, self.edge_dim, self.fill_value = (
            negative_slope,
            add_self_loops,
            edge_dim,
            fill_value,
        )
        self.lin = Linear(in_channels, heads * out_channels, bias=False)
        self.att_src, self.att_dst = _zeros(1, heads, out_channels), _zeros(1, heads, out_channels)
        if edge_dim is not None:
            self.lin_edge = Linear(edge_dim, heads * out_channels, bias=False)
            self.att_edge = _zeros(1, heads, out_channels)
        if bias:
            self.bias = _zeros(heads * out_channels if concat else out_channels)
        else:
            self.register_parameter("bias", None)
        self.dropout = Dropout(dropout)
        for name, p in self.named_parameters():
            if name != "bias":
                init.xavier_uniform_(p)

    def forward(self, x, edge_index, edge_attr=None):
        nodes = x.shape[0]
        edges = edges_of(edge_index, nodes, None, self.add_self_loops)
        y = F.reshape(self.lin(x), (nodes, self.heads, self.out_channels))
        of_edge = None
        if edge_attr is not None:
            if self.edge_dim is None:
                raise ValueRangeError(
                    "GATConv", "edge_attr is given, but the layer has no edge_dim", fix="GATConv(..., edge_dim=...)"
                )
            edge_attr = edge_attr if edge_attr.ndim > 1 else F.unsqueeze(edge_attr, -1)
            if not isinstance(edge_index, Edges):
                edge_attr = edges.listed(edge_attr, self.fill_value)
            z = F.reshape(self.lin_edge(edge_attr), (-1, self.heads, self.out_channels))
            of_edge = F.sum(z * self.att_edge, -1)
        if edges.replaced is not None:
            none = F.unsqueeze(edges.replaced_here(), -1)
            unscored = F.where(none, -math.inf, F.full((1, self.heads), 0, dtype=y.dtype, device=y.device))
            of_edge = unscored if of_edge is None else F.where(none, -math.inf, of_edge)
        s = edges.structure
        places = [s.row, s.start, s.order, s.column, s.start_t, s.order_t]
        scores = attention_scores(
            F.sum(y * self.att_src, -1), F.sum(y * self.att_dst, -1), of_edge, places, self.negative_slope
        )
        made = s.matmul(self.dropout(s.softmax(scores)), y)
        made = F.reshape(made, (nodes, -1)) if self.concat else F.mean(made, 1)
        return made if self.bias is None else made + self.bias

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, heads={self.heads}"


class GINConv(Module):
    """A network of (1 + eps) times the node plus the sum of its neighbours (Xu et al., 2019). train_eps: eps is a parameter.

    >>> td.nn.GINConv(td.nn.Linear(4, 2))(td.ones(3, 4), td.tensor([[0, 1], [1, 2]])).shape
    (3, 2)
    """

    def __init__(self, nn: Module, eps: float = 0.0, train_eps: bool = False):
        super().__init__()
        self.nn = nn
        start = F.full((1,), float(eps))
        if train_eps:
            self.eps = Parameter(start)
        else:
            self.register_buffer("eps", start)

    def forward(self, x, edge_index):
        edges = edges_of(edge_index, x.shape[0])
        return self.nn((1 + self.eps) * x + neighbours(x, edges))


class GINEConv(GINConv):
    """GINConv whose neighbours send relu(x_j + edge features) (Hu et al., 2020). edge_dim: size of edge_attr, if not that of x."""

    def __init__(self, nn: Module, eps: float = 0.0, train_eps: bool = False, edge_dim: int | None = None,
                 in_channels: int | None = None):  # fmt: skip
        super().__init__(nn, eps, train_eps)
        if edge_dim is not None and in_channels is None:
            first = next((m for m in nn.modules() if isinstance(m, Linear)), None)
            if first is None:
                raise ValueRangeError(
                    "GINEConv", "the network has no Linear that tells the size of x", fix="pass in_channels="
                )
            in_channels = first.in_features
        self.lin = Linear(edge_dim, in_channels) if edge_dim is not None else None

    def forward(self, x, edge_index, edge_attr):
        edges = edges_of(edge_index, x.shape[0])
        if not isinstance(edge_index, Edges):
            edge_attr = edges.listed(edge_attr)
        if self.lin is not None:
            edge_attr = self.lin(edge_attr)
        messages = F.relu(edges.structure.of_columns(x) + edge_attr)
        return self.nn((1 + self.eps) * x + aggregate(messages, edges))
