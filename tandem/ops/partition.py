"""Rows dealt out to parts and put together again: dynamic_partition and dynamic_stitch, as TensorFlow has them."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import DTypeError, IndexRangeError, ShapeError, UnsupportedError, ValueRangeError
from tandem.graph.ir import Value
from tandem.ops.define import as_tensor, public
from tandem.ops.edges import group_parts


@public
def dynamic_partition(data: Tensor, partitions: Tensor, num_partitions):
    """The rows of data that go to each of num_partitions parts, in order; how many depends on values, which are read.

    data: (*p, *r), partitions: (*p) of integers below num_partitions -> a list of tensors (n_i, *r)

    >>> td.dynamic_partition(td.tensor([10, 20, 30]), td.tensor([1, 0, 1]), 2)
    [tensor([20]), tensor([10, 30])]
    """
    k = partitions.ndim
    if data.shape[:k] != partitions.shape:
        raise ShapeError(
            "dynamic_partition",
            f"data is {tuple(data.shape)} and partitions {tuple(partitions.shape)}, which must be the beginning of it",
        )
    if num_partitions < 1:
        raise ValueRangeError(
            "dynamic_partition", f"num_partitions is {num_partitions}; there must be one part at least"
        )
    if not partitions.dtype.is_integer:
        raise DTypeError("dynamic_partition", f"partitions are {partitions.dtype}; they must be integers")
    if isinstance(partitions, Value):
        rows = F.reshape(data, (-1, *data.shape[k:]))
        return [F.index_select(rows, 0, n) for n in rows_of_parts(partitions, num_partitions)]
    start, order = group_parts(F.reshape(partitions, (-1,)), num_partitions)
    rows = F.index_select(F.reshape(data, (-1, *data.shape[k:])), 0, order)
    bounds = start.tolist()
    return [rows[bounds[i] : bounds[i + 1]] for i in range(num_partitions)]


def rows_of_parts(partitions, count: int) -> list:
    """Numbers of the rows that go to each part, in order: dynamic_partition of 0, 1, 2, ..."""
    if isinstance(partitions, Value):
        return _graph("dynamic_partition", partitions).rows_of_parts(partitions, count)
    start, order = group_parts(F.reshape(partitions, (-1,)), count)
    bounds = start.tolist()
    return [order[bounds[i] : bounds[i + 1]] for i in range(count)]


@public
def dynamic_stitch(indices, data):
    """The converse of dynamic_partition: row indices[k][i] of the result is data[k][i]; of several for one row the last counts.

    indices: tensors (*p_k), data: tensors (*p_k, *r) -> (largest index + 1, *r); rows that no index names are 0

    >>> td.dynamic_stitch([td.tensor([1]), td.tensor([0, 2])], [td.tensor([20]), td.tensor([10, 30])])
    tensor([10, 20, 30])
    """
    indices, data = [_tensor(i) for i in indices], [_tensor(d) for d in data]
    if not indices or len(indices) != len(data):
        raise ValueRangeError("dynamic_stitch", f"there are {len(indices)} tensors of indices and {len(data)} of data")
    for index, rows in zip(indices, data, strict=True):
        if rows.shape[: index.ndim] != index.shape:
            raise ShapeError(
                "dynamic_stitch",
                f"indices are {tuple(index.shape)} and their data {tuple(rows.shape)}, which must begin so",
            )
    rest = data[0].shape[indices[0].ndim :]
    for k, (index, rows) in enumerate(zip(indices, data, strict=True)):
        if rows.shape[index.ndim :] != rest:
            here = tuple(rows.shape[index.ndim :])
            raise ShapeError("dynamic_stitch", f"rows of data[{k}] are {here}, and those of data[0] are {tuple(rest)}")
    symbolic = next((i for i in indices if isinstance(i, Value)), None)
    if symbolic is not None:
        nothing = F.full((1, *rest), 0, dtype=data[0].dtype)
        rows = F.concat([*(F.reshape(d, (-1, *rest)) for d in data), nothing], 0)
        return F.index_select(rows, 0, _graph("dynamic_stitch", symbolic).rows_in_order(indices))
    place = F.concat([F.reshape(F.astype(i, dtypes.int64), (-1,)) for i in indices], 0)
    rows = F.concat([F.reshape(d, (-1, *rest)) for d in data], 0)
    size = 0
    if place.shape[0]:
        least, most = F.amin(place), F.amax(place)
        if int(least) < 0:
            raise IndexRangeError(
                "dynamic_stitch", f"index {int(least)} is negative; indices are numbers of rows, from 0 on"
            )
        size = int(most) + 1
    return F.index_copy(F.full((size, *rest), 0, dtype=rows.dtype, device=rows.device), 0, place, rows)


def _graph(op: str, value: Value):
    """The deferred graph of a value, which can have sizes that depend on values."""
    graph = getattr(value.node, "graph", None)
    if not hasattr(graph, "rows_of_parts"):
        raise UnsupportedError(op, "how many rows there are depends on values, which this graph does not have")
    return graph


def _tensor(x):
    return x if isinstance(x, (_runtime.Tensor, Value)) else as_tensor("dynamic_stitch", "data", x)
