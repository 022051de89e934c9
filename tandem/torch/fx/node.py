"""Calls of a traced program, and the order that they stand in."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from tandem.errors import ValueRangeError

Target = Callable | str  # of calls: a function, or the name of a method, a submodule, an attribute
Argument = Any
KINDS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")


def map_arg(tree, function):
    """tree with function(node) for every Node in its tuples, lists, dicts and slices."""
    return map_aggregate(tree, lambda a: function(a) if isinstance(a, Node) else a)


def map_aggregate(tree, function):
    """tree with function(leaf) for everything that is no tuple, list, dict or slice."""
    if isinstance(tree, tuple):
        made = [map_aggregate(t, function) for t in tree]
        return type(tree)(*made) if hasattr(tree, "_fields") else tuple(made)
    if isinstance(tree, list):
        return [map_aggregate(t, function) for t in tree]
    if isinstance(tree, dict):
        return {k: map_aggregate(v, function) for k, v in tree.items()}
    if isinstance(tree, slice):
        return slice(*(map_aggregate(t, function) for t in (tree.start, tree.stop, tree.step)))
    return function(tree)


class Node:
    """One call: what is called (`op` says of which kind, `target` what), with what, and who uses the result.

    args and kwargs hold other nodes and plain values; assigning them keeps `users` right.
    """

    def __init__(self, graph, name: str, op: str, target, args: tuple, kwargs: dict, type_expr=None):
        if op not in KINDS:
            raise ValueRangeError("fx.Node", f"op is {op!r}; it must be one of {', '.join(KINDS)}")
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, type_expr
        self.users: dict[Node, None] = {}
        self.meta: dict = {}
        self.stack_trace: str | None = None
        self._inputs: dict[Node, None] = {}
        self._args, self._kwargs = (), {}
        self._before = self._after = self  # neighbours in the graph's ring
        self._erased = False
        self._set(tuple(args), dict(kwargs))

    # -- arguments

    @property
    def args(self) -> tuple:
        return self._args

    @args.setter
    def args(self, value):
        self._set(tuple(value), self._kwargs)

    @property
    def kwargs(self) -> dict:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value):
        self._set(self._args, dict(value))

    def _set(self, args: tuple, kwargs: dict):
        for used in self._inputs:
            used.users.pop(self, None)
        self._inputs = {}
        map_arg((args, kwargs), self._uses)
        self._args, self._kwargs = args, kwargs

    def _uses(self, node: Node) -> Node:
        self._inputs[node] = None
        node.users[self] = None
        return node

    @property
    def all_input_nodes(self) -> list[Node]:
        return list(self._inputs)

    def update_arg(self, index: int, value):
        args = list(self._args)
        args[index] = value
        self.args = args

    def update_kwarg(self, key: str, value):
        self.kwargs = {**self._kwargs, key: value}

    def insert_arg(self, index: int, value):
        self.args = (*self._args[:index], value, *self._args[index:])

    def replace_input_with(self, old: Node, new: Node):
        """Has this node use new wherever it used old."""
        self._set(*map_arg((self._args, self._kwargs), lambda n: new if n is old else n))

    def replace_all_uses_with(self, replacement: Node, delete_user_cb=lambda user: True, *, propagate_meta=False):
        """Has whoever uses this node use another; gives those nodes."""
        if propagate_meta:
            replacement.meta.update({k: v for k, v in self.meta.items() if k not in replacement.meta})
        changed = [user for user in list(self.users) if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replacement)
        return changed

    # -- place

    @property
    def next(self) -> Node:
        return self._after

    @property
    def prev(self) -> Node:
        return self._before

    def prepend(self, node: Node):
        """Moves or inserts node before this one."""
        if node is self:
            return
        node._unlink()
        before = self._before
        before._after = node
        node._before, node._after = before, self
        self._before = node

    def append(self, node: Node):
        """Moves or inserts node after this one."""
        self._after.prepend(node)

    def _unlink(self):
        self._before._after, self._after._before = self._after, self._before
        self._before = self._after = self

    def __lt__(self, other: Node) -> bool:
        node = self._after
        while node is not self.graph._root:
            if node is other:
                return True
            node = node._after
        return False

    def is_impure(self) -> bool:
        """Whether it is there for more than its result."""
        if self.op in ("placeholder", "output"):
            return True
        name = getattr(self.target, "__name__", self.target) if self.op != "call_module" else ""
        return isinstance(name, str) and ((name.endswith("_") and not name.endswith("__")) or name in _EFFECTS)

    # -- words

    def __repr__(self) -> str:
        return self.name

    def format_node(self, placeholder_names=None, maybe_return_typename=None) -> str:
        """The node as a line of text."""
        if self.op == "placeholder":
            default = f"(default={self._args[0]!r})" if self._args else ""
            return f"%{self.name} : [num_users={len(self.users)}] = placeholder[target={self.target}]{default}"
        if self.op == "output":
            return f"return {self._args[0]}"
        target = self.target if isinstance(self.target, str) else name_of(self.target)
        called = f"%{self.name} : [num_users={len(self.users)}] = {self.op}[target={target}]"
        if self.op == "get_attr":
            return called
        shown = map_arg((self._args, self._kwargs), lambda n: _Shown(f"%{n.name}"))
        return f"{called}(args = {shown[0]}, kwargs = {shown[1]})"


_EFFECTS = ("_assert", "setitem", "__setitem__", "print")


class _Shown:
    def __init__(self, text: str):
        self.text = text

    def __repr__(self):
        return self.text


def name_of(target) -> str:
    """A function by its module and name."""
    module = getattr(target, "__module__", "") or ""
    name = getattr(target, "__qualname__", None) or getattr(target, "__name__", None) or str(target)
    if getattr(builtins, name, None) is target:
        return name
    return f"{module}.{name}" if module else name
