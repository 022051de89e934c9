"""Networks over graphs: layers, message passing, edges prepared for them, batches, samples of large graphs, loaders."""

from tandem.aliases import from_above
from tandem.nn.graph.batch import (
    GraphBatch,
    GraphData,
    batch_graphs,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)
from tandem.nn.graph.convolutions import GATConv, GCNConv, GINConv, GINEConv, SAGEConv
from tandem.nn.graph.edges import Edges, edges_of
from tandem.nn.graph.message_passing import MessagePassing, aggregate, neighbours
from tandem.nn.graph.sampling import sample_neighbors, sample_subgraph

__all__ = [
    "Edges", "GATConv", "GCNConv", "GINConv", "GINEConv", "GraphBatch", "GraphData", "MessagePassing", "SAGEConv", "aggregate",
    "batch_graphs", "edges_of", "global_add_pool", "global_max_pool", "global_mean_pool", "neighbours", "sample_neighbors",
    "sample_subgraph",
]  # fmt: skip

__getattr__ = from_above(__name__)  # GraphLoader, NeighborLoader
