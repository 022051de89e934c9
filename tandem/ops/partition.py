"""Rows dealt out to parts and put together again: dynamic_partition and dynamic_stitch, as TensorFlow has them."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import ShapeError, UnsupportedError, ValueRangeError
from tandem.graph.ir import Value
from tandem.ops.define import as_tensor, public
from tandem.ops.edges import group_index


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
    if isinstance(data, Value) or isinstance(partitions, Value):
        raise UnsupportedError(
            "dynamic_partition", "sizes of parts depend on values, which a deferred graph does not have"
        )
    start, order = group_index(F.reshape(partitions, (-1,)), num_partitions)
    rows = F.index_select(F.reshape(data, (-1, *data.shape[k:])), 0, order)
    bounds = start.tolist()
    return [rows[bounds[i] : bounds[i + 1]] for i in range(num_partitions)]


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
    place = F.concat([F.reshape(F.astype(i, dtypes.int64), (-1,)) for i in indices], 0)
    rows = F.concat([F.reshape(d, (-1, *rest)) for d in data], 0)
    size = int(F.amax(place)) + 1 if place.shape[0] else 0
    return F.index_copy(F.full((size, *rest), 0, dtype=rows.dtype, device=rows.device), 0, place, rows)


def _tensor(x):
    return x if isinstance(x, _runtime.Tensor) else as_tensor("dynamic_stitch", "data", x)
