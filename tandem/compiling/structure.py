"""Structures of data: which vertices take from which others, as arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tandem import _runtime
from tandem.errors import DTypeError, IndexRangeError, ShapeError, ValueRangeError


def _integers(name: str, values) -> np.ndarray:
    array = np.asarray(values.cpu().numpy() if isinstance(values, _runtime.Tensor) else values)
    if array.size and array.dtype.kind not in "iu":
        raise DTypeError("Structure", f"{name} has elements of type {array.dtype}; it must have integers")
    if array.ndim != 1:
        raise ShapeError("Structure", f"{name} is {array.shape}; it must have one axis")
    return array.astype(np.int64)


class Structure:
    """A batch of chains, trees and acyclic graphs of any mix, for vertex programs (`td.vertex`): vertices, and children of each.

    Made from arrays in CSR form, the children of vertex v being children[offsets[v]:offsets[v + 1]], or by `from_parents`,
    `from_nested` and `chains`. Vertices are numbered from 0.

    >>> tree = td.Structure([0, 0, 0, 2], [0, 1])  # vertex 2 has the children 0 and 1
    >>> tree.num_vertices, tree.roots.tolist()
    (3, [2])
    """

    def __init__(self, offsets, children):
        self.offsets = _integers("offsets", offsets)
        self.children = _integers("children", children)
        if not self.offsets.size or self.offsets[0] != 0 or self.offsets[-1] != self.children.size:
            raise ShapeError(
                "Structure", f"offsets must begin with 0 and end with {self.children.size}, the number of children"
            )
        if np.any(np.diff(self.offsets) < 0):
            raise ValueRangeError("Structure", "offsets must not fall from one vertex to the next")
        n = self.num_vertices
        if self.children.size and not (0 <= self.children.min() and self.children.max() < n):
            raise IndexRangeError("Structure", f"a child is no vertex: they are numbered from 0 to {n - 1}")

    @property
    def num_vertices(self) -> int:
        """How many vertices there are."""
        return self.offsets.size - 1

    @property
    def counts(self) -> np.ndarray:
        """How many children each vertex has."""
        return np.diff(self.offsets)

    @property
    def roots(self) -> np.ndarray:
        """The vertices that are nobody's children, in order."""
        inner = np.zeros(self.num_vertices, bool)
        inner[self.children] = True
        return np.nonzero(~inner)[0]

    @property
    def reversed(self) -> Structure:
        """The same vertices, with the parents of each for children: for programs that go from the roots down."""
        owners = np.repeat(np.arange(self.num_vertices), self.counts)
        order = np.argsort(self.children, kind="stable")
        offsets = np.zeros(self.num_vertices + 1, np.int64)
        np.cumsum(np.bincount(self.children, minlength=self.num_vertices), out=offsets[1:])
        return Structure(offsets, owners[order])

    def __len__(self) -> int:
        return self.num_vertices

    def __repr__(self):
        return f"Structure({self.num_vertices} vertices, {self.children.size} edges, {len(self.roots)} roots)"

    @classmethod
    def from_parents(cls, parents) -> Structure:
        """From the parent of each vertex, -1 for roots. Children are in order of their numbers.

        >>> td.Structure.from_parents([2, 2, -1]).children.tolist()
        [0, 1]
        """
        parents = _integers("parents", parents)
        n = parents.size
        if n and not (-1 <= parents.min() and parents.max() < n):
            raise IndexRangeError(
                "Structure", f"a parent is no vertex: they are numbered from 0 to {n - 1}, and a root has -1"
            )
        offsets = np.zeros(n + 1, np.int64)
        inner = parents[parents >= 0]
        np.cumsum(np.bincount(inner, minlength=n)[:n], out=offsets[1:])
        order = np.argsort(np.where(parents < 0, n, parents), kind="stable")
        return cls(offsets, order[: inner.size])

    @classmethod
    def from_nested(cls, trees: Sequence) -> tuple[Structure, list]:
        """From trees written as tuples or lists of their children; anything else is a leaf. Gives the structure, and for each
        vertex the leaf that it is, or None. Children come before their parents.

        >>> structure, leaves = td.Structure.from_nested([("a", ("b", "c")), "d"])
        >>> leaves
        ['a', 'b', 'c', None, None, 'd']
        >>> structure.roots.tolist()
        [4, 5]
        """
        leaves: list = []
        rows: list[list[int]] = []
        for tree in trees:  # without recursion: trees may be deep
            results: list[list[int]] = [[]]
            stack = [(tree, False)]
            while stack:
                node, entered = stack.pop()
                if not isinstance(node, (tuple, list)):
                    results[-1].append(len(leaves))
                    leaves.append(node)
                    rows.append([])
                elif entered:
                    children = results.pop()
                    results[-1].append(len(leaves))
                    leaves.append(None)
                    rows.append(children)
                else:
                    results.append([])
                    stack.append((node, True))
                    stack.extend((child, False) for child in reversed(node))
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        return cls(offsets, np.asarray([c for row in rows for c in row], np.int64)), leaves

    @classmethod
    def chains(cls, lengths) -> Structure:
        """Sequences one after the other: each vertex takes from the one before it in its sequence.

        >>> td.Structure.chains([3, 2]).children.tolist()
        [0, 1, 3]
        """
        lengths = _integers("lengths", lengths)
        if lengths.size and lengths.min() < 1:
            raise ValueRangeError("Structure", f"a sequence has length {lengths.min()}; it must have an element")
        first = np.zeros(int(lengths.sum()), bool)
        first[np.cumsum(lengths) - lengths] = True
        offsets = np.zeros(first.size + 1, np.int64)
        np.cumsum(~first, out=offsets[1:])
        return cls(offsets, np.nonzero(~first)[0] - 1)
