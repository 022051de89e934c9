"""A graph as a function of Python."""

from __future__ import annotations

import builtins
import keyword
import operator
import sys
from typing import NamedTuple

from tandem.torch.fx.node import Node, map_aggregate

_INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//", operator.mod: "%",
    operator.pow: "**", operator.matmul: "@", operator.and_: "&", operator.or_: "|", operator.xor: "^", operator.lshift: "<<",
    operator.rshift: ">>", operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">",
    operator.ge: ">=",
}  # fmt: skip
_PREFIX = {operator.neg: "-", operator.pos: "+", operator.invert: "~"}


class PythonCode(NamedTuple):
    """src defines `forward`; globals are what it names."""

    src: str
    globals: dict


def write(graph, root: str = "self") -> PythonCode:
    names = _Globals()
    last = _last_uses(graph)
    lines, parameters = [], [root]
    for node in graph.nodes:
        if node.op == "placeholder":
            default = f" = {names.literal(node.args[0])}" if node.args else ""
            parameters.append(f"{'*' * node.target.count('*')}{_parameter(node)}{default}")
            if _parameter(node) != node.name:
                lines.append(f"{node.name} = {_parameter(node)}")
            continue
        if node.op == "output":
            lines.append(f"return {names.literal(node.args[0])}")
            break
        lines.append(f"{node.name} = {_call(node, root, names)}")
        gone = [n.name for n in last.get(node, ())]
        if gone:  # so that its memory is free again
            lines[-1] += f";  {' = '.join(gone)} = None"
    body = "".join(f"    {line}\n" for line in lines or ["pass"])
    return PythonCode(f"def forward({', '.join(parameters)}):\n{body}", names.made)


def _parameter(node: Node) -> str:
    return node.target.lstrip("*")


def _last_uses(graph) -> dict[Node, list[Node]]:
    """The nodes whose last user is a node."""
    found: dict[Node, Node] = {}
    for node in graph.nodes:
        for used in node.all_input_nodes:
            found[used] = node
        if not node.users and node.op not in ("placeholder", "output"):
            found[node] = node
    last: dict[Node, list[Node]] = {}
    for node, user in found.items():
        if user.op != "output":
            last.setdefault(user, []).append(node)
    return last


def _call(node: Node, root: str, names: _Globals) -> str:
    args = [names.literal(a) for a in node.args]
    rest = [*args, *_keywords(node.kwargs, names)]
    if node.op == "get_attr":
        return _path(root, node.target)
    if node.op == "call_module":
        return f"{_path(root, node.target)}({', '.join(rest)})"
    if node.op == "call_method":
        return f"{_receiver(node.args[0], args[0])}.{node.target}({', '.join(rest[1:])})"
    target = node.target
    if not node.kwargs:
        if target in _INFIX and len(args) == 2:
            return f"{args[0]} {_INFIX[target]} {args[1]}"
        if target in _PREFIX and len(args) == 1:
            return f"{_PREFIX[target]}{args[0]}"
        if target is operator.getitem:
            return f"{_receiver(node.args[0], args[0])}[{args[1]}]"
        if target is getattr and len(args) == 2 and isinstance(node.args[1], str) and node.args[1].isidentifier():
            return f"{_receiver(node.args[0], args[0])}.{node.args[1]}"
    return f"{names.function(target)}({', '.join(rest)})"


def _receiver(value, text: str) -> str:
    return text if isinstance(value, Node) else f"({text})"


def _keywords(kwargs: dict, names: _Globals) -> list[str]:
    plain = {k: v for k, v in kwargs.items() if k.isidentifier() and not keyword.iskeyword(k)}
    other = {k: v for k, v in kwargs.items() if k not in plain}
    made = [f"{k} = {names.literal(v)}" for k, v in plain.items()]
    return [*made, f"**{names.literal(other)}"] if other else made


def _path(root: str, target: str) -> str:
    text = root
    for part in target.split("."):
        text = f"{text}.{part}" if part.isidentifier() and not keyword.iskeyword(part) else f'getattr({text}, "{part}")'
    return text


class _Globals:
    """What a function's text names: values that have no literal, functions by their path."""

    def __init__(self):
        self.made: dict = {}

    def literal(self, value) -> str:
        """Text that gives a value again, with nodes by their names."""
        return repr(map_aggregate(value, lambda leaf: _Text(self._leaf(leaf))))

    def _leaf(self, value) -> str:
        if isinstance(value, Node):
            return value.name
        if value is None or value is ... or type(value) in (bool, int, str, bytes):
            return repr(value)
        if type(value) is float:
            return repr(value) if value - value == 0 else f'float("{value}")'
        return self._name(value, f"_{type(value).__name__}")

    def function(self, target) -> str:
        name = getattr(target, "__name__", type(target).__name__)
        if getattr(builtins, name, None) is target:
            return name
        if getattr(operator, name, None) is target:
            self.made["operator"] = operator
            return f"operator.{name}"
        for prefix, module in (("torch", "tandem.torch"), ("torch.nn.functional", "tandem.nn.functional")):
            if getattr(sys.modules.get(module), name, None) is target:
                self.made["torch"] = sys.modules["tandem.torch"]
                return f"{prefix}.{name}"
        return self._name(target, name)

    def _name(self, value, wanted: str) -> str:
        wanted = "".join(c if c.isalnum() else "_" for c in wanted)
        wanted = wanted if wanted.isidentifier() and not keyword.iskeyword(wanted) else f"_{wanted}"
        name, number = f"{wanted}_", 1
        while name in self.made and self.made[name] is not value:
            name, number = f"{wanted}_{number}_", number + 1
        self.made[name] = value
        return name


class _Text:
    def __init__(self, text: str):
        self.text = text

    def __repr__(self):
        return self.text
