"""What the plans of a function's calls rely on, for sizes that are free: which sizes an exported graph is right for.

# Note [Conditions]
# A plan is right for the sizes that satisfy its guards; a call with others gets another plan, or an error. An exported graph is
# made of one plan for each call, so the guards of all of them, in sizes of the arguments, say for which sizes it is what the
# function computes. Where one fails for some of the sizes that are looked at (Note [Probes]),
# - the operator is traced once more with sizes in general (`in_general` in tandem/graph/symbolic.py), as those that
#   take parts of tensors know how to compute with bounds wherever they lie;
# - the graph for such a size is made and compared: the plan that has its guards may be of the same operators;
# - else the condition is part of the graph, which refuses other sizes when it runs, and names the line.
"""

from __future__ import annotations

import dataclasses
import itertools

from tandem import _runtime
from tandem.errors import source_at
from tandem.export.sizes import Explored, other_calls, refusal
from tandem.graph.ir import Graph
from tandem.graph.substitution import substitute
from tandem.graph.symbolic import Sym, Symbols, known
from tandem.ops.define import FUNCTIONS, HIDDEN, INTERNAL
from tandem.tracing.compile import Reader, trace_call


@dataclasses.dataclass(frozen=True)
class Condition:
    """expression `relation` 0, which a call relies on."""

    relation: str
    expression: Sym
    why: str  # the operator and its line

    def holds(self, mapping: dict) -> bool:
        return HOLDS[self.relation](substitute(self.expression, mapping))


HOLDS = {
    "==": lambda d: d == 0,
    "!=": lambda d: d != 0,
    "<": lambda d: d < 0,
    ">=": lambda d: d >= 0,
}


class Conditions:
    """The plans of calls as a graph of free sizes is joined from them, and what these rely on."""

    def __init__(self, looked_at: list[dict]):
        self._looked_at = looked_at
        self._general: dict = {}
        self._mappings: list[dict] = []
        self.found: list[Condition] = []

    def begin(self, symbols: Symbols):
        """A graph's arguments are there: these are their sizes."""
        self._mappings = [sizes_as(symbols, sizes) for sizes in self._looked_at]
        self.found = []

    def plan(self, call, values: dict):
        """The plan of a call, or one that holds for more sizes."""
        plan = call.plan
        conditions = self._of(call, plan, values)
        if self._fail(conditions):
            other = self._in_general(plan)
            if other is not None:
                plan = other
                conditions = self._of(call, plan, values)
        self.found += conditions
        return plan

    def _fail(self, conditions: list[Condition]) -> bool:
        return any(not c.holds(m) for c in conditions for m in self._mappings)

    def _of(self, call, plan, values: dict) -> list[Condition]:
        symbols = plan.graph.symbols
        sizes = {}
        for index, origin in enumerate(symbols.origins):
            if origin[0] == "size":
                sizes[index] = values[origin[1]].shape[origin[2]]
            elif origin[0] == "int":
                sizes[index] = values[origin[1]]
            else:
                sizes[index] = symbols.hints[index]
        made = []
        for relation, guard in symbols.guards:
            expression = substitute(guard, sizes) if relation != "==" else 0
            if isinstance(expression, Sym) and known(relation, expression) is not True:
                made.append(Condition(relation, expression, described(call)))
        return made

    def _in_general(self, plan):
        """The same operator for sizes in general; None where that is not known."""
        if id(plan) not in self._general:
            self._general[id(plan)] = plan, _traced_in_general(plan)
        return self._general[id(plan)][1]


def described(call) -> str:
    return f"{call.plan.name} at {source_at(call.code, call.line)}" if call.code is not None else call.plan.name


def _traced_in_general(plan):
    named = [table.get(plan.name) for table in (HIDDEN, INTERNAL, FUNCTIONS)]
    function = next((f for f in named if f is not None and _takes(f, plan)), None)
    if function is None or plan.temporaries:
        return None
    spec = [item for _, item, _ in plan.arguments]
    if any(item.kind in ("seed", "offset") for item in spec):
        return None
    traced = trace_call(function, spec, GeneralReader)
    graph = traced.graph
    if graph.mutations or traced.positions != plan.positions:
        return None
    if [v.dtype for v in graph.outputs] != [v.dtype for v in plan.graph.outputs]:  # td.autocast
        return None
    return plan._replace(graph=graph)


def _takes(function, plan) -> bool:
    """Whether the plan may be of this function."""
    names = {name for name, _, _ in plan.arguments}
    return isinstance(function, _runtime.OpFunction) and names <= {p.name for p in function.parameters}


class GeneralReader(Reader):
    """Arguments whose integers may have any sign."""

    def __init__(self, spec, builder, traced):
        super().__init__(spec, builder, traced)
        builder.graph.symbols.in_general = True

    def _int(self, position, value):
        return self.builder.graph.symbols.new(value, ("int", position), signed=True)


def sizes_as(symbols: Symbols, sizes: dict) -> dict[int, int]:
    """What each symbol is where groups of axes have these sizes."""
    place = {p: n for g, n in sizes.items() for p in g.places}
    return {
        i: place.get(tuple(origin[1:]), hint) if origin[0] == "size" else hint
        for i, (hint, origin) in enumerate(zip(symbols.hints, symbols.origins, strict=True))
    }


def limit(graph: Graph, explored: Explored, conditions: list[Condition], is_same, is_right):
    """Has the graph refuse sizes that it is not right for.

    is_same(sizes): whether the function's graph for these is this one
    is_right(sizes): whether this graph gives what the function gives for these
    """
    symbols = graph.symbols
    for g, (refused, unclear) in explored.few.items():
        others = {s[g]: other_calls(s[g], g.size) for s in unclear if not is_right(s)}
        _refuse(symbols, g, refused | others)
    _require_shapes(graph, explored)
    known_same: dict = {}
    for condition in conditions:
        for sizes in explored.looked_at:
            if condition.holds(sizes_as(symbols, sizes)):
                continue
            key = tuple(sizes.items())
            if key not in known_same:
                known_same[key] = is_same(sizes)
            if not known_same[key]:
                symbols.require(condition.relation, condition.expression, _reason(condition, sizes))
                break


def _reason(condition: Condition, sizes: dict) -> str:
    where = ", ".join(f"{g} has {n}" for g, n in sizes.items())
    return f"{condition.why} does something else where {where} elements"


def _require_shapes(graph: Graph, explored: Explored):
    """Has the graph refuse sizes for which the function's results have other shapes than its own, as after `squeeze` of one row."""
    symbols, groups = graph.symbols, list(explored.sizes)
    wrong = [s for s in explored.looked_at if not _has_shapes(graph, explored, s)]
    for g in groups:
        few = sorted({s[g] for s in wrong if all(t in wrong for t in explored.looked_at if t[g] == s[g])})
        _refuse(symbols, g, dict.fromkeys(few, "the function gives other shapes"))
        wrong = [s for s in wrong if s[g] not in few]
    for sizes in wrong:
        raise refusal(sizes, explored.sizes, "it gives other shapes with the first")


def _refuse(symbols: Symbols, g, sizes: dict[int, str]):
    """Sizes of a group that the graph is not right for, and why."""
    size = symbols.symbol(_index_of(symbols, g))
    least = next(n for n in itertools.count(1) if n not in sizes)
    if least > 1:
        symbols.require(">=", size - least, f"{g} must have {least} elements or more: {sizes[least - 1]}")
    for n, why in sizes.items():
        if n > least:
            symbols.require("!=", size - n, f"{g} must not have {n} elements: {why}")


def _has_shapes(graph: Graph, explored: Explored, sizes: dict) -> bool:
    run = explored.runs.get(sizes)
    if run is None:
        return True
    mapping = sizes_as(graph.symbols, sizes)
    return all(tuple(t.shape) == substitute(v.shape, mapping) for t, v in zip(run.leaves, graph.outputs, strict=False))


def _index_of(symbols: Symbols, g) -> int:
    return next(i for i, origin in enumerate(symbols.origins) if tuple(origin[1:]) in g.places)
