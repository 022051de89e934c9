"""Graphs as data: one, many as one, and what is said of each of many."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import ShapeError, ValueRangeError
from tandem.ops.segments import segment_max, segment_mean, segment_sum
from tandem.tensors.constructors import tensor

Tensor = _runtime.Tensor


class GraphData:
    """One graph: features of nodes x (n, *), edge_index (2, m), edge_attr (m, *), a label y, and whatever else is given by name.

    Fields named *index hold numbers of nodes. Batching joins fields along their first axis, those along their last; texts and
    other objects become lists.

    >>> td.nn.graph.GraphData(x=td.ones(3, 2), edge_index=td.tensor([[0], [1]])).num_nodes
    3
    """

    def __init__(self, x=None, edge_index=None, edge_attr=None, y=None, num_nodes: int | None = None, **more):
        self.x, self.edge_index, self.edge_attr, self.y = x, edge_index, edge_attr, y
        self._nodes = num_nodes
        for name, value in more.items():
            setattr(self, name, value)

    def fields(self) -> dict:
        """What it holds, by name."""
        return {k: v for k, v in vars(self).items() if not k.startswith("_") and v is not None}

    @property
    def num_nodes(self) -> int:
        if self._nodes is not None:
            return self._nodes
        if self.x is not None:
            return self.x.shape[0]
        return int(F.amax(self.edge_index)) + 1 if self.edge_index is not None and self.edge_index.size else 0

    @property
    def num_edges(self) -> int:
        return 0 if self.edge_index is None else self.edge_index.shape[1]

    def to(self, *args, **kwargs):
        """The same with all tensors moved or converted."""
        moved = {k: v.to(*args, **kwargs) if isinstance(v, Tensor) else v for k, v in self.fields().items()}
        made = type(self).__new__(type(self))
        vars(made).update({k: v for k, v in vars(self).items() if k.startswith("_")})
        for name in ("x", "edge_index", "edge_attr", "y"):
            setattr(made, name, None)
        vars(made).update(moved)
        return made

    def __repr__(self) -> str:
        shown = (f"{k}={tuple(v.shape)}" if isinstance(v, Tensor) else f"{k}={v!r}" for k, v in self.fields().items())
        return f"{type(self).__name__}({', '.join(shown)})"


class GraphBatch(GraphData):
    """Several graphs as one that falls into parts. batch: (n) the graph of every node; ptr: (graphs + 1) where they begin."""

    @property
    def num_graphs(self) -> int:
        return self.ptr.shape[0] - 1

    def unbatch(self) -> list[GraphData]:
        """The graphs again."""
        made = []
        starts = {name: [0] for name in self._sizes}
        for i in range(self.num_graphs):
            fields = {}
            for name, sizes in self._sizes.items():
                begin, end = starts[name][-1], starts[name][-1] + sizes[i]
                starts[name].append(end)
                value = getattr(self, name)
                part = value[..., begin:end] - self.ptr[i] if name.endswith("index") else value[begin:end]
                fields[name] = F.reshape(part, ()) if self._numbers.get(name) else part
            fields.update({name: values[i] for name, values in self.fields().items() if isinstance(values, list)})
            made.append(GraphData(**fields, num_nodes=int(self.ptr[i + 1] - self.ptr[i])))
        return made


def batch_graphs(graphs: list[GraphData]) -> GraphBatch:
    """Many small graphs as one; a collate_fn for DataLoader.

    >>> one = td.nn.graph.GraphData(x=td.ones(2, 1), edge_index=td.tensor([[0], [1]]))
    >>> td.nn.graph.batch_graphs([one, one]).edge_index
    tensor([[0, 2],
            [1, 3]])
    """
    if not graphs:
        raise ValueRangeError("batch_graphs", "there are no graphs")
    names = list(graphs[0].fields())
    if any(set(g.fields()) != set(names) for g in graphs):
        raise ValueRangeError("batch_graphs", f"graphs have different fields: {names} and others")
    counts = [g.num_nodes for g in graphs]
    starts = [0]
    for n in counts:
        starts.append(starts[-1] + n)
    made = GraphBatch(num_nodes=starts[-1])
    made._sizes, made._numbers = {}, {}
    for name in names:
        values = [getattr(g, name) for g in graphs]
        if any(isinstance(v, (str, bytes, dict, set)) or v is None for v in values):
            setattr(made, name, values)  # no numbers: a list
            continue
        values = [v if isinstance(v, Tensor) else tensor(v) for v in values]
        if values[0].ndim == 0:
            made._numbers[name] = True
            values = [F.reshape(v, (1,)) for v in values]
        if name.endswith("index"):
            values = [v + s for v, s in zip(values, starts, strict=False)]
            made._sizes[name] = [v.shape[-1] for v in values]
            setattr(made, name, F.concat(values, -1))
            continue
        made._sizes[name] = [v.shape[0] for v in values]
        setattr(made, name, F.concat(values, 0))
    made.ptr = _runtime.from_data(starts, dtypes.int64)
    made.batch = F.repeat_interleave(F.arange(len(graphs)), _runtime.from_data(counts, dtypes.int64))
    return made


def _graphs(x, batch, size):
    if batch is None:
        return F.full((x.shape[0],), 0, dtype=dtypes.int64, device=x.device), 1
    if batch.shape != x.shape[:1]:
        raise ShapeError(
            "pool", f"x is {tuple(x.shape)} and batch is {tuple(batch.shape)}; there must be a graph for every node"
        )
    return batch, int(F.amax(batch)) + 1 if size is None else size


def global_add_pool(x, batch=None, size: int | None = None):
    """x: (nodes, *r), batch: (nodes), the graph of every node -> (graphs, *r): sums. size: how many graphs, read from batch if not
    given."""
    return segment_sum(x, *_graphs(x, batch, size))


def global_mean_pool(x, batch=None, size: int | None = None):
    """Means over the nodes of each graph; see global_add_pool."""
    return segment_mean(x, *_graphs(x, batch, size))


def global_max_pool(x, batch=None, size: int | None = None):
    """Maxima over the nodes of each graph; see global_add_pool."""
    return segment_max(x, *_graphs(x, batch, size))
