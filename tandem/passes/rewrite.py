"""Rewrite rules as data: a pattern on the left, a replacement on the right.

    x = any_("x")
    identities = Rules(
        (x * 1, lambda x: x),                              # x * 1 -> x
        (op_("neg", op_("neg", x)), lambda x: x),          # -(-x) -> x
    )
    graph = identities.apply(graph)

A replacement is a function of what the pattern has bound, by name; `out` is the value that matched. It gives a value of the same
type, or None for "not here". It has no state and no side effect.
"""

from __future__ import annotations

import math
import operator
import sys

from tandem import _runtime
from tandem.errors import InternalError
from tandem.graph.ir import Builder, Graph, Node, Value
from tandem.graph.verify import same_type
from tandem.passes.eliminate_dead import eliminate
from tandem.passes.rebuild import rebuild

SWEEPS = 16  # through the graph, until nothing matches
CHASES = 50  # rules that may fire one after the other at one value


class Pattern:
    """What a value must be made by. Remembers where it was written, for printouts."""

    def __init__(self):
        frame = sys._getframe(1)
        while frame.f_code.co_filename == __file__:
            frame = frame.f_back
        self.source = f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}"

    made_by: frozenset | None = None  # names of operators, one of which must have made the value

    def match(self, value: Value, bound: dict[str, Value]) -> bool:
        raise NotImplementedError

    def __add__(self, other):
        return op_("add", self, other)

    def __radd__(self, other):
        return op_("add", other, self)

    def __sub__(self, other):
        return op_("sub", self, other)

    def __rsub__(self, other):
        return op_("sub", other, self)

    def __mul__(self, other):
        return op_("mul", self, other)

    def __rmul__(self, other):
        return op_("mul", other, self)

    def __truediv__(self, other):
        return op_("div", self, other)

    def __neg__(self):
        return op_("neg", self)


class any_(Pattern):
    """Any value; the same value wherever the name occurs again."""

    def __init__(self, name: str):
        super().__init__()
        self.name = name

    def match(self, value, bound):
        return bound.setdefault(self.name, value) is value


class number_(Pattern):
    """A constant with this very value: 0 is 0 or 0.0, not -0.0. Seen through movements, which leave a constant what it is."""

    made_by = frozenset({"constant", "reshape", "expand", "permute"})

    def __init__(self, number):
        super().__init__()
        self.number = number

    def match(self, value, bound):
        found = constant_of(value)
        if found is None or found != self.number:
            return False
        return not isinstance(found, float) or math.copysign(1, found) == math.copysign(1, self.number)


class op_(Pattern):
    """A value made by the operator of this name from such inputs (numbers are constants), with such attributes."""

    def __init__(self, name: str, *inputs, bind: str | None = None, **fields):
        super().__init__()
        self.name = name
        self.inputs = tuple(p if isinstance(p, Pattern) else number_(p) for p in inputs)
        self.bind = bind
        self.fields = fields
        self.made_by = frozenset({name})
        self._wanted = [p.made_by for p in self.inputs]

    def may_match(self, made_by: list[str]) -> bool:
        """Whether a value can match whose inputs are made by the operators of these names; a glance, before all is looked at."""
        wanted = self._wanted
        if len(made_by) != len(wanted):
            return False
        if all([w is None or name in w for w, name in zip(wanted, made_by)]):  # noqa: C419
            return True
        return len(wanted) == 2 and all([w is None or name in w for w, name in zip(wanted, made_by[::-1])])  # noqa: C419

    def match(self, value, bound):
        node = value.node
        op = node.op
        if op.name != self.name or len(node.inputs) != len(self.inputs) or len(node.outputs) != 1 or node.control:
            return False
        for field, wanted in self.fields.items():
            if getattr(op, field) != wanted:
                return False
        if self.bind is not None and bound.setdefault(self.bind, value) is not value:
            return False
        if not op.commutative:
            return self._match_inputs(node.inputs, bound)
        before = dict(bound)
        if self._match_inputs(node.inputs, bound):
            return True
        bound.clear()
        bound.update(before)
        return self._match_inputs(node.inputs[::-1], bound)

    def _match_inputs(self, values, bound) -> bool:
        for pattern, value in zip(self.inputs, values):  # noqa: SIM110  # this is where rules spend their time
            if not pattern.match(value, bound):
                return False
        return True


def constant_of(value: Value):
    """The Python number that every element of value is known to be, or None."""
    while value.op.name in ("reshape", "expand", "permute"):
        value = value.node.inputs[0]
    return value.op.value if value.op.name == "constant" else None


class Rules:
    """A set of rules. Sets combine with `+`."""

    def __init__(self, *rules):
        self.rules = rules
        self._by_op: dict[str, list] = {}
        for pattern, replacement in rules:
            code = replacement.__code__
            self._by_op.setdefault(pattern.name, []).append(
                (pattern, replacement, code.co_varnames[: code.co_argcount])
            )

    def __add__(self, other: Rules) -> Rules:
        return Rules(*self.rules, *other.rules)

    def apply(self, graph: Graph, fired: list | None = None) -> Graph:
        """graph rewritten until no rule matches; `fired` collects (source of the rule, name of the operator it matched)."""
        trail: list[str] = []
        settled: set[Node] = set()  # nodes never change, so where no rule matched none will
        for _ in range(SWEEPS):
            if not self._matches_anywhere(graph, settled):
                return graph
            trail.clear()
            rewritten = rebuild(graph, lambda node, inputs: self._visit(node, inputs, trail, settled))
            if fired is not None:
                fired += trail
            if not trail:
                return rewritten
            graph = _reachable(rewritten)
        raise InternalError(
            "rewrite", f"rules do not come to an end; those that still fire: {', '.join(sorted(set(trail)))}"
        )

    def _visit(self, node: Node, inputs: tuple[Value, ...], trail: list[str], settled: set[Node]) -> Value | None:
        if node.op.name not in self._by_op or len(node.outputs) != 1 or node.control:
            return None
        if any(map(operator.is_not, inputs, node.inputs)):
            value = node.op(*inputs)
        elif node in settled:
            return None
        else:
            value = node.outputs[0]  # not yet in the new graph: rules only look
        first, chased = value, []
        while True:
            replaced = self._once(value, chased)
            if replaced is None:
                break
            if len(chased) > CHASES:
                raise InternalError("rewrite", f"rules chase each other: {', '.join(sorted(set(chased)))}")
            value = replaced
        settled.add(value.node)
        trail += chased
        return None if value is first and value is node.outputs[0] else value

    def _matches_anywhere(self, graph: Graph, settled: set[Node]) -> bool:
        """Whether a rule matches where none was tried yet; looking takes a part of the time of a sweep."""
        _runtime.enter_trace()
        try:
            with Builder(Graph(graph.symbols, graph.name)):  # for what replacements make, which nobody needs
                for node in graph.nodes:
                    if node.op.name not in self._by_op or len(node.outputs) != 1 or node in settled:
                        continue
                    if self._once(node.outputs[0], []) is not None:
                        return True
                    settled.add(node)
        finally:
            _runtime.exit_trace()
        return False

    def _once(self, value: Value, chased: list[str]) -> Value | None:
        rules = self._by_op.get(value.op.name, ())
        made_by = [v.op.name for v in value.node.inputs] if rules else []
        for pattern, replacement, names in rules:
            bound = {"out": value}
            if not pattern.may_match(made_by) or not pattern.match(value, bound):
                continue
            result = replacement(*[bound[name] for name in names])
            if result is None or result is value:
                continue
            if not same_type(result.type, value.type):
                raise InternalError(
                    "rewrite",
                    f"the rule at {pattern.source} turns {value.op!r} of type {value.type!r} into {result.type!r}",
                )
            chased.append(pattern.source)
            return result
        return None


def _reachable(graph: Graph) -> Graph:
    return eliminate(graph)
