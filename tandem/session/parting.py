"""dynamic_partition and dynamic_stitch in deferred graphs.

How many rows a part has depends on values, so which rows those are is found between programs; the rows themselves are then taken by
an operator, which differentiates, on whatever device or task they are.
"""

from __future__ import annotations

import numpy as np

from tandem import _runtime, dtypes
from tandem.errors import IndexRangeError
from tandem.graph.ir import Type
from tandem.session.nodes import Host
from tandem.tensors.constructors import asarray


class _RowNumbers(Host):
    """Numbers of rows, of which there are as many as values say."""

    def call(self, node, operands, cancellation) -> list:
        there = max(map(_runtime.device_index, operands), default=0)
        found = [asarray(rows) for rows in self.find(node, [t.cpu().numpy().reshape(-1) for t in operands])]
        return [_runtime.move(t, there) for t in found] if there else found


class PartRows(_RowNumbers):
    """Which rows go to each of `count` parts."""

    name = "dynamic_partition"
    saved = ("count",)

    def __init__(self, count: int):
        super().__init__()
        self.count = count

    def find(self, node, operands) -> list:
        (parts,) = operands
        wrong = parts[(parts < 0) | (parts >= self.count)]
        if wrong.size:
            raise IndexRangeError(
                self.name,
                f"index {int(wrong[0])} is out of range for axis 0 with size {self.count}",
                source=node.source,
            )
        return [np.nonzero(parts == k)[0].astype(np.int64) for k in range(self.count)]


class StitchRows(_RowNumbers):
    """For each row of the result, which one it is of all that are stitched together; one beyond the last where there is none."""

    name = "dynamic_stitch"
    saved = ()

    def find(self, node, operands) -> list:
        place = np.concatenate(operands).astype(np.int64)
        if place.size and place.min() < 0:
            rule = f"index {int(place.min())} is negative; indices are numbers of rows, from 0 on"
            raise IndexRangeError(self.name, rule, source=node.source)
        source = np.full(int(place.max()) + 1 if place.size else 0, -1, dtype=np.int64)
        np.maximum.at(source, place, np.arange(place.size))  # of several for one row, the last counts
        return [np.where(source < 0, place.size, source)]


def _numbers(graph, op: _RowNumbers, operands, count: int) -> list:
    """count vectors of numbers, each as long as a run finds it to be."""
    name = graph.unique_name(op.name)
    del graph._names[name]
    types = tuple(Type(dtypes.int64, (graph.symbols.new_unknown(name, k),)) for k in range(count))
    return list(graph.add_node(op, tuple(operands), types, name.rpartition("/")[2]).outputs)


def rows_of_parts(graph, partitions, count: int) -> list:
    """Numbers of the rows of each part, in order."""
    return _numbers(graph, PartRows(count), [partitions], count)


def rows_in_order(graph, indices: list):
    """Where each row of the result is among all rows, one after another."""
    return _numbers(graph, StitchRows(), indices, 1)[0]
