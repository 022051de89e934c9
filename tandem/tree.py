"""Nested containers of tensors, such as the parameters of a model: functions over all their leaves at once.

Containers are dictionaries, lists, tuples and named tuples; None holds nothing; everything else is a leaf.
"""

from __future__ import annotations

import functools

from tandem.errors import ValueRangeError

__all__ = ["Structure", "flatten", "leaves", "map", "paths", "reduce", "structure", "unflatten"]


class Structure:
    """The containers of a nested value without its leaves; each leaf has a path, such as "[1]['h']"."""

    __slots__ = ("kind", "keys", "parts")

    def __init__(self, kind, keys=(), parts=()):
        self.kind = kind  # None for a leaf, type(None) for None, or the type of the container
        self.keys = tuple(keys)
        self.parts = tuple(parts)

    def key(self):
        return self.kind, self.keys, tuple(p.key() for p in self.parts)

    def __eq__(self, other):
        return isinstance(other, Structure) and self.key() == other.key()

    def __hash__(self):
        return hash(self.key())

    def paths(self, prefix: str = "") -> list[str]:
        if self.kind is None:
            return [prefix]
        found = []
        for key, part in zip(self.keys, self.parts, strict=True):
            found += part.paths(prefix + (f".{key}" if hasattr(self.kind, "_fields") else f"[{key!r}]"))
        return found

    def __repr__(self):
        if self.kind is None:
            return "*"
        if self.kind is type(None):
            return "None"
        inside = ", ".join(
            f"{k!r}: {p!r}" if self.kind is dict else repr(p) for k, p in zip(self.keys, self.parts, strict=True)
        )
        if self.kind is list:
            return f"[{inside}]"
        if self.kind is dict:
            return f"{{{inside}}}"
        name = "" if self.kind is tuple else self.kind.__name__
        return f"{name}({inside}{',' if len(self.parts) == 1 and not name else ''})"


LEAF = Structure(None)


def flatten(x) -> tuple[list, Structure]:
    leaves: list = []
    return leaves, _take_apart(x, leaves)


def _take_apart(x, leaves: list) -> Structure:
    if x is None:
        return Structure(type(None))
    if isinstance(x, dict):
        keys = list(x)
        return Structure(dict, keys, [_take_apart(x[k], leaves) for k in keys])
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return Structure(type(x), x._fields, [_take_apart(y, leaves) for y in x])
    if isinstance(x, (list, tuple)):
        return Structure(list if isinstance(x, list) else tuple, range(len(x)), [_take_apart(y, leaves) for y in x])
    leaves.append(x)
    return LEAF


def unflatten(structure: Structure, leaves):
    return _put_together(structure, iter(leaves))


def _put_together(structure: Structure, leaves):
    kind = structure.kind
    if kind is None:
        return next(leaves)
    if kind is type(None):
        return None
    parts = [_put_together(p, leaves) for p in structure.parts]
    if kind is dict:
        return dict(zip(structure.keys, parts, strict=True))
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


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
