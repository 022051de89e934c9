"""td.tree under PyTorch's path and names."""

from __future__ import annotations

from tandem import tree
from tandem.errors import UnsupportedError
from tandem.tree import Structure as TreeSpec

__all__ = [
    "TreeSpec",
    "tree_all",
    "tree_any",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "tree_unflatten",
]
PyTree = object


def _refuse(is_leaf):
    if is_leaf is not None:
        raise UnsupportedError("tree_flatten", "is_leaf is not offered: containers are never leaves", fix="use td.tree")


def tree_flatten(tree_, is_leaf=None):
    """(leaves, structure).

    >>> from tandem.utils import _pytree
    >>> _pytree.tree_flatten({"a": 1, "b": [2, 3]})[0]
    [1, 2, 3]
    """
    _refuse(is_leaf)
    return tree.flatten(tree_)


def tree_unflatten(leaves, treespec):
    """The containers of a structure with these leaves."""
    return tree.unflatten(treespec, list(leaves))


def tree_leaves(tree_, is_leaf=None) -> list:
    _refuse(is_leaf)
    return tree.leaves(tree_)


def tree_map(func, tree_, *rests, is_leaf=None):
    """func of each leaf, in the same containers."""
    _refuse(is_leaf)
    return tree.map(func, tree_, *rests)


def tree_map_only(kind, func, tree_, is_leaf=None):
    """func of the leaves of a type (or that a function holds of); the others stay."""
    _refuse(is_leaf)
    wanted = kind if callable(kind) and not isinstance(kind, type) else lambda leaf: isinstance(leaf, kind)
    return tree.map(lambda leaf: func(leaf) if wanted(leaf) else leaf, tree_)


def tree_all(pred, tree_, is_leaf=None) -> bool:
    _refuse(is_leaf)
    return all(map(pred, tree.leaves(tree_)))


def tree_any(pred, tree_, is_leaf=None) -> bool:
    _refuse(is_leaf)
    return any(map(pred, tree.leaves(tree_)))
