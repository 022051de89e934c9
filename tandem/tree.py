"""Nested containers of tensors, such as the parameters of a model: functions over all their leaves at once.

Containers are dictionaries, lists, tuples and named tuples; None holds nothing; everything else is a leaf.
"""

from __future__ import annotations

import functools

from tandem.control.tree import Structure, flatten, unflatten
from tandem.errors import ValueRangeError

__all__ = ["Structure", "flatten", "leaves", "map", "paths", "reduce", "structure", "unflatten"]


def leaves(tree) -> list:
    """The leaves of a nested container, in order.

    >>> td.tree.leaves({"a": 1, "b": [2, (3, None)]})
    [1, 2, 3]
    """
    return flatten(tree)[0]


def structure(tree) -> Structure:
    """The containers without their leaves.

    >>> td.tree.structure({"a": 1, "b": [2, (3, None)]})
    {'a': *, 'b': [*, (*, None)]}
    """
    return flatten(tree)[1]


def paths(tree) -> list[str]:
    """Where each leaf is.

    >>> td.tree.paths({"a": 1, "b": [2, 3]})
    ["['a']", "['b'][0]", "['b'][1]"]
    """
    return flatten(tree)[1].paths()


def map(fn, tree, *rest):
    """fn of each leaf, or of the leaves at the same place of several containers, in the containers of the first.

    >>> params, grads = {"w": td.ones(2), "b": td.zeros(1)}, {"w": td.ones(2), "b": td.ones(1)}
    >>> td.tree.map(lambda p, g: p - 0.5 * g, params, grads)
    {'w': tensor([0.5000, 0.5000]), 'b': tensor([-0.5000])}
    """
    first, shape = flatten(tree)
    columns = [first]
    for number, other in enumerate(rest, 2):
        values, theirs = flatten(other)
        if theirs != shape:
            raise ValueRangeError("tree.map", f"container {number} is {theirs}, but the first is {shape}")
        columns.append(values)
    return unflatten(shape, [fn(*row) for row in zip(*columns, strict=True)])


def reduce(fn, tree, *initial):
    """The leaves put together by a function of two, from the left.

    >>> td.tree.reduce(lambda a, b: a + b, {"a": 1, "b": [2, 3]})
    6
    """
    return functools.reduce(fn, leaves(tree), *initial)
