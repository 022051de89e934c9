"""Proxy: what stands for a tensor while a program is traced; whatever is done with it becomes a node."""

from __future__ import annotations

import dis
import operator
import sys

from tandem.errors import TandemError
from tandem.torch.fx.graph import Graph
from tandem.torch.fx.node import Node, map_aggregate


class TraceError(TandemError, ValueError):
    """Something that cannot be followed without values. A ValueError, as in PyTorch."""


class TracerBase:
    """Makes nodes of `self.graph` of what is done with proxies."""

    graph: Graph

    def create_node(self, kind: str, target, args: tuple, kwargs: dict, name=None, type_expr=None) -> Node:
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def create_proxy(self, kind: str, target, args: tuple, kwargs: dict, name=None, type_expr=None) -> Proxy:
        args, kwargs = self.create_arg(tuple(args)), self.create_arg(dict(kwargs))
        return self.proxy(self.create_node(kind, target, args, kwargs, name, type_expr))

    def proxy(self, node: Node) -> Proxy:
        return Proxy(node, self)

    def create_arg(self, a):
        """An argument of a node: nodes for proxies, attributes for tensors."""
        return map_aggregate(a, self._leaf)

    def iter(self, obj: Proxy):
        raise TraceError(
            "fx.symbolic_trace", f"a loop over {obj.node.name}, whose length is not known before the program runs",
            fix='loop over range(n) with a plain number n, or put the loop into a function and name it with torch.fx.wrap("name")',
        )  # fmt: skip

    def to_bool(self, obj: Proxy) -> bool:
        raise TraceError(
            "fx.symbolic_trace", f"a decision by {obj.node.name}, whose value is not known before the program runs",
            fix='use torch.where, or put it into a function and name it: torch.fx.wrap("name"); td.compile follows decisions',
        )  # fmt: skip

    def keys(self, obj: Proxy):
        return obj.tracer.create_proxy("call_method", "keys", (obj,), {})

    def _leaf(self, a):
        if isinstance(a, Proxy):
            return a.node
        return a


class GraphAppendingTracer(TracerBase):
    """Proxies of nodes of a graph that is there already: what is done with them is put into it."""

    def __init__(self, graph: Graph):
        self.graph = graph


class Proxy:
    """The result of a node. Functions, methods and operators of it give further ones."""

    def __init__(self, node: Node, tracer=None):
        self.node, self.tracer = node, tracer or GraphAppendingTracer(node.graph)

    def __repr__(self):
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return Attribute(self, name)

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self):
        frame = sys._getframe(1)
        found = next((i for i in dis.get_instructions(frame.f_code) if i.offset == frame.f_lasti), None)
        if found is not None and found.opname == "UNPACK_SEQUENCE":  # a, b = proxy says how many there are
            return (self[i] for i in range(found.argval))
        return self.tracer.iter(self)

    def __bool__(self):
        return self.tracer.to_bool(self)

    def __len__(self):
        raise TraceError(
            "fx.symbolic_trace",
            f"len({self.node.name}) is not known before the program runs",
            fix='call torch.fx.wrap("len") first',
        )

    def __setitem__(self, key, value):
        self.tracer.create_proxy("call_function", operator.setitem, (self, key, value), {})

    def keys(self):
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tracer = tracer_of((args, kwargs))
        if isinstance(func, _METHODS) and not isinstance(args[0] if args else None, Proxy):
            return tracer.create_proxy("call_method", func.__name__, args, kwargs)
        return tracer.create_proxy("call_function", func, args, kwargs)


_METHODS = (type(str.join), type(object.__init__))


def tracer_of(tree):
    """The tracer of the proxies in arguments, None if there are none."""
    if isinstance(tree, Proxy):
        return tree.tracer
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (tuple, list)):
        return next((t for t in map(tracer_of, tree) if t is not None), None)
    return None


class Attribute(Proxy):
    """proxy.name: a method if it is called, a node of getattr if it is used otherwise."""

    def __init__(self, root: Proxy, name: str):
        self.root, self.attr, self.tracer = root, name, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class Member(Proxy):
    """A parameter or buffer of a module that is traced: a node of get_attr once it is used."""

    def __init__(self, path: str, tracer, value):
        self.path, self.tracer, self.value = path, tracer, value
        self._node: Node | None = None

    @property
    def node(self) -> Node:
        if self._node is None:
            self._node = self.tracer.create_proxy("get_attr", self.path, (), {}).node
        return self._node

    def __getattr__(self, name: str):
        if name in _KNOWN:  # what can be said of it without running anything
            return getattr(self.value, name)
        return super().__getattr__(name)

    def __len__(self):
        return len(self.value)


_KNOWN = ("shape", "dtype", "device", "ndim", "requires_grad", "is_leaf")


def _of_operator(function):
    def method(self, *args):
        return self.tracer.create_proxy("call_function", function, (self, *args), {})

    return method


def _of_reflected(function):
    def method(self, other):
        return self.tracer.create_proxy("call_function", function, (other, self), {})

    return method


for _name in (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "lshift",
    "rshift",
    "and_",
    "or_",
    "xor",
):
    _function = getattr(operator, _name)
    setattr(Proxy, f"__{_name.rstrip('_')}__", _of_operator(_function))
    setattr(Proxy, f"__r{_name.rstrip('_')}__", _of_reflected(_function))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "invert", "getitem", "abs"):
    setattr(Proxy, f"__{_name}__", _of_operator(getattr(operator, _name)))
for _name in ("iadd", "isub", "imul", "itruediv"):
    setattr(Proxy, f"__{_name}__", _of_operator(getattr(operator, _name)))
Proxy.__hash__ = object.__hash__
