"""Graph: a program as calls that can be looked at, moved, replaced and taken out."""

from __future__ import annotations

import builtins
import contextlib
import keyword
import re
from collections.abc import Callable, Iterator

from tandem.errors import UnsupportedError, ValueRangeError
from tandem.torch.fx.code import PythonCode, write
from tandem.torch.fx.node import Node, map_arg

_TAKEN = {*keyword.kwlist, *dir(builtins), "self", "torch", "inf", "nan"}


class Graph:
    """Calls in the order that they run. New ones go to the end, or where inserting_before and inserting_after say.

    >>> graph = td.torch.fx.Graph()
    >>> x = graph.placeholder("x")
    >>> _ = graph.output(graph.call_function(td.torch.relu, (x,)))
    >>> td.torch.fx.GraphModule({}, graph)(td.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def __init__(self, owning_module=None, tracer_cls=None, tracer_extras=None):
        self.owning_module = owning_module
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras
        self._names: dict[str, int] = {}
        self._root = Node(self, "", "placeholder", "", (), {})  # stands between the last and the first
        self._place: Callable[[Node], None] = self._root.prepend

    # -- looking

    @property
    def nodes(self) -> Nodes:
        return Nodes(self)

    def find_nodes(self, *, op: str, target=None, sort: bool = True) -> list[Node]:
        """The nodes of a kind, and of a target."""
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def output_node(self) -> Node:
        found = self.find_nodes(op="output")
        if not found:
            raise ValueRangeError("fx.Graph", "the graph has no output", fix="add one: graph.output(node)")
        return found[-1]

    def __str__(self) -> str:
        return "\n".join(["graph():", *(f"    {n.format_node()}" for n in self.nodes)])

    def print_tabular(self) -> None:
        """Prints a table of the nodes."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [tuple(str(v) for v in (n.op, n.name, n.target, n.args, n.kwargs)) for n in self.nodes]
        widths = [max(len(r[i]) for r in rows) for i in range(5)]
        for row in rows:
            print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())

    def lint(self) -> None:
        """Raises an error if the graph is not sound: a node used before it is there, two of one name, a missing attribute."""
        seen: dict[Node, None] = {}
        names = set()
        for node in self.nodes:
            if node.graph is not self:
                raise ValueRangeError("fx.Graph.lint", f"node {node.name} is of another graph")
            for used in node.all_input_nodes:
                if used not in seen:
                    raise ValueRangeError(
                        "fx.Graph.lint", f"node {node.name} uses {used.name}, which is not there before it"
                    )
            if node.name in names:
                raise ValueRangeError("fx.Graph.lint", f"two nodes have the name {node.name}")
            if node.op in ("get_attr", "call_module") and self.owning_module is not None:
                fetch(self.owning_module, node.target)
            seen[node] = None
            names.add(node.name)

    # -- making

    def create_node(self, op: str, target, args=None, kwargs=None, name=None, type_expr=None) -> Node:
        """A node of any kind, at the place of insertion."""
        node = Node(
            self, self._free_name(name or _suggested(op, target)), op, target, args or (), kwargs or {}, type_expr
        )
        self._place(node)
        return node

    def placeholder(self, name: str, type_expr=None, default_value=...) -> Node:
        """An input."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr, name=name.replace("*", ""))

    def get_attr(self, qualified_name: str, type_expr=None) -> Node:
        """A parameter, a buffer or another attribute of the module."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_function(self, the_function, args=None, kwargs=None, type_expr=None, name=None) -> Node:
        """the_function(*args, **kwargs)."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def call_method(self, method_name: str, args=None, kwargs=None, type_expr=None) -> Node:
        """args[0].method_name(*args[1:], **kwargs)."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_module(self, module_name: str, args=None, kwargs=None, type_expr=None) -> Node:
        """A call of a submodule."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def output(self, result, type_expr=None) -> Node:
        """What the program returns."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform=lambda n: n) -> Node:
        """A copy of a node of any graph, its arguments through arg_transform."""
        args, kwargs = map_arg((node.args, node.kwargs), arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(self, graph: Graph, val_map: dict, return_output_node: bool = False):
        """Copies the nodes of another graph here; val_map gives those that are there already, and gets the others. The result
        of the other graph in terms of this one."""
        for node in graph.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo=None) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        copies: dict[Node, Node] = {}
        result = made.graph_copy(self, copies)
        if any(n.op == "output" for n in self.nodes):
            made.output(result).meta = dict(self.output_node().meta)
        return made

    # -- changing

    @contextlib.contextmanager
    def _inserting(self, place):
        before, self._place = self._place, place
        try:
            yield
        finally:
            self._place = before

    def inserting_before(self, node: Node | None = None):
        """with graph.inserting_before(node): new nodes go before it; before the first one if it is None."""
        return self._at((node or self._root._after).prepend, node)

    def inserting_after(self, node: Node | None = None):
        """with graph.inserting_after(node): new nodes go after it, in the order that they are made in."""
        last = [node or self._root]

        def place(made: Node):
            last[0].append(made)
            last[0] = made

        return self._at(place, node)

    def _at(self, place, node):
        if node is not None and node.graph is not self:
            raise ValueRangeError("fx.Graph", f"node {node.name} is of another graph")
        return self._inserting(place)

    def erase_node(self, node: Node) -> None:
        """Takes out a node that nobody uses."""
        if node.users:
            users = ", ".join(n.name for n in node.users)
            raise ErasedInUseError(
                "fx.Graph.erase_node", f"{node.name} is used by {users}", fix="first: node.replace_all_uses_with(other)"
            )
        if node.graph is not self:
            raise ValueRangeError("fx.Graph.erase_node", f"node {node.name} is of another graph")
        if node._erased:
            return
        node.args, node.kwargs = (), {}
        node._unlink()
        node._erased = True

    def eliminate_dead_code(self, is_impure_node=None) -> bool:
        """Takes out what nobody uses and what has no effect; whether there was any."""
        kept = is_impure_node or (lambda n: n.is_impure())
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not kept(node):
                self.erase_node(node)
                changed = True
        return changed

    # -- as Python

    def python_code(self, root_module: str = "self", *, verbose: bool = False) -> PythonCode:
        """The program as a function of Python: `src`, and the `globals` that it needs."""
        return write(self, root_module)

    def _free_name(self, wanted: str) -> str:
        wanted = re.sub(r"\W", "_", wanted) or "node"
        wanted = f"_{wanted}" if wanted[0].isdigit() else wanted
        base, _, number = wanted.rpartition("_")
        base, count = (base, int(number)) if base and number.isdigit() else (wanted, None)
        if count is None and wanted not in self._names and wanted not in _TAKEN:
            self._names[wanted] = 0
            return wanted
        if count is not None and wanted not in self._names:
            self._names[wanted] = 0
            self._names[base] = max(self._names.get(base, 0), count)
            return wanted
        count = self._names.get(base, 0) + 1
        while f"{base}_{count}" in self._names:
            count += 1
        self._names[base] = count
        self._names[f"{base}_{count}"] = 0
        return f"{base}_{count}"


class ErasedInUseError(UnsupportedError, RuntimeError):
    """A node that others use cannot be erased. A RuntimeError, as in PyTorch."""


class Nodes:
    """The nodes of a graph in order; a loop over them may add nodes, and erase the one that it is at."""

    def __init__(self, graph: Graph):
        self.graph = graph

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Node]:
        return self._walk("_after")

    def __reversed__(self) -> Iterator[Node]:
        return self._walk("_before")

    def _walk(self, way: str):
        root = self.graph._root
        node = getattr(root, way)
        while node is not root:
            following = getattr(node, way)
            yield node
            node = following if node._erased else getattr(node, way)

    def __repr__(self) -> str:
        return repr(list(self))


def _suggested(op: str, target) -> str:
    name = target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
    return name.replace(".", "_").replace("*", "").strip("_") or op


def fetch(root, path: str):
    """root.a.b for "a.b"."""
    found = root
    for i, part in enumerate(path.split(".")):
        if not hasattr(found, part):
            raise ValueRangeError(
                "fx.Graph", f"{type(root).__name__} has no {'.'.join(path.split('.')[: i + 1])}, which a node names",
                fix="add it to the module first: module.add_submodule(path, layer)",
            )  # fmt: skip
        found = getattr(found, part)
    return found
