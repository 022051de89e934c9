"""Structured control flow in graphs: operators that hold graphs.

Note [Regions]
A region is a node whose operator has graphs among its attributes: what is computed for one branch, or in one iteration. Its graphs
look at nothing outside: whatever a body uses is an input of the node (`consts`), so autodiff, passes and lowering treat a region
like any other operator. Sizes inside are written in the symbols of the graph around it.

    Cond    index, *args -> *results              branches[i](*args) -> results; index is bool (0, 1) or an integer in range
    Scan    *carry, *xs, *consts -> *carry, *ys   body(*carry, *rows of xs, *consts, position) -> *carry, *rows of ys
    While   *carry, *consts -> *carry, count      cond(*carry, *consts, iteration) -> bool;
                                                  body(*carry, *consts, iteration) -> *carry
    Block   size, *args -> *results               body(*args) -> results, with sizes that mention `size`, known when it runs

Types of carried values are the same before and after each iteration. `position` and `iteration` are 0-d int64. The results of Cond
may be None in a branch that does not make them: nobody looks at them then (see autodiff/regions.py). A Block is where sizes exist
that depend on values: the gradient of a While runs as many iterations as the While did, and keeps as many values.

Code generation makes a step of a region whose graphs are plans of their own (codegen/regions.py, src/plan/region.cc): native
loops without Python.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.errors import InternalError
from tandem.graph.ir import Builder, Graph, Type, Value, current_builder, current_source, is_tracing, source_scope
from tandem.graph.symbolic import Symbols
from tandem.graph.verify import same_type
from tandem.ops import rules
from tandem.ops.define import LibraryOp, add_input, register


class Region(LibraryOp):
    """What regions have in common. Like a library routine, a region reads and writes memory."""

    directs = True  # whether it decides what runs: a branch or a loop
    carried = scanned = 0  # values that iterations pass on, and those whose rows they take
    reverse = False  # whether the last row comes first
    takes_complex = True
    holomorphic = False  # its gradient is that of the graphs inside (autodiff/regions.py)
    sparse_grads = True  # gradients that did not arrive are None: zeros would be carried through whole loops

    @property
    def effect(self) -> bool:
        return any(node.op.effect for graph in self.graphs() for node in graph.nodes)

    def graphs(self) -> tuple[Graph, ...]:
        raise NotImplementedError

    def with_graphs(self, *graphs: Graph) -> Region:
        """The same region with other graphs in it."""
        raise NotImplementedError

    def _with_sizes(self, change) -> Region:
        """The same region with `change` applied to its own sizes, not to those in its graphs."""
        return self

    def substitute(self, change) -> Region:
        return self._with_sizes(change).with_graphs(*(substituted(g, change) for g in self.graphs()))

    def __repr__(self):
        shown = [
            f"{f}={getattr(self, f)}"
            for f in self._fields
            if f != "branches" and getattr(self, f) is not None and not isinstance(getattr(self, f), Graph)
        ]
        return f"{self.name}[{', '.join(shown)}]" if shown else self.name

    def _check(self, graph: Graph, expected: list[Type]):
        given = [v.type for v in graph.inputs]
        if len(given) != len(expected) or not all(_agree(a, b) for a, b in zip(given, expected, strict=True)):
            raise InternalError(self.name, f"its graph takes {given}, but is given {expected}")


def directs(op) -> bool:
    """Whether an operator is a branch or a loop."""
    return isinstance(op, Region) and op.directs


def _agree(a: Type, b: Type) -> bool:
    return same_type(a, b)


@register
class Cond(Region):
    name = "cond"
    branches: tuple

    def infer(self, index: Type, *args: Type) -> tuple[Type, ...]:
        results: list[Type | None] = [None] * len(self.branches[0].outputs)
        for branch in self.branches:
            self._check(branch, list(args))
            for k, v in enumerate(branch.outputs):
                if v is None:
                    continue
                if results[k] is None:
                    results[k] = v.type
                elif not _agree(results[k], v.type):
                    raise InternalError(
                        self.name, f"result {k} is {results[k]!r} in one branch and {v.type!r} in another"
                    )
        return tuple(results)

    def rule(self, *types: Type):
        graphs = self.branches and all(isinstance(b, Graph) for b in self.branches)
        rules.allowed(self, graphs, f"branches are {str(self.branches)[:60]}; they must be graphs")
        counts = {len(b.outputs) for b in self.branches}
        rules.allowed(self, len(counts) == 1, f"branches give {sorted(counts)} results; all must give as many")
        rules.allowed(self, bool(types), "it takes at least 1 operand, the number of the branch")
        which = types[0]
        fits = not which.shape and (which.dtype.is_integer or (which.dtype is dtypes.bool_ and len(self.branches) == 2))
        rules.allowed(self, fits, f"{which!r} does not choose one of {len(self.branches)} branches")

    def bounds(self, index: Type, *args: Type):
        return {} if index.dtype is dtypes.bool_ else {0: (len(self.branches), 0)}

    def graphs(self):
        return self.branches

    def with_graphs(self, *graphs):
        return Cond(tuple(graphs))


@register
class Scan(Region):
    name = "scan"
    body: Graph
    carried: int
    scanned: int
    length: object  # Dim
    reverse: bool

    def infer(self, *types: Type) -> tuple[Type, ...]:
        c, x = self.carried, self.scanned
        rows = [Type(t.dtype, t.shape[1:]) for t in types[c : c + x]]
        self._check(self.body, [*types[:c], *rows, *types[c + x :], Type(dtypes.int64, ())])
        made = [v.type for v in self.body.outputs]
        if not all(_agree(a, b) for a, b in zip(types[:c], made, strict=False)):
            raise InternalError(self.name, f"it carries {list(types[:c])}, but its body makes {made[:c]} of them")
        return (*made[:c], *(Type(t.dtype, (self.length, *t.shape)) for t in made[c:]))

    def rule(self, *types: Type):
        c, x = self.carried, self.scanned
        fits = c >= 0 and x >= 0 and c + x <= len(types) and c <= len(self.body.outputs)
        rules.allowed(self, fits, f"it carries {c} and scans {x}, of {len(types)} operands")
        fits = len(self.body.inputs) == len(types) + 1 and None not in self.body.outputs
        rules.allowed(self, fits, f"its graph has {len(self.body.inputs)} inputs, for {len(types)} operands")
        rules.size(self, "length", self.length)
        for t in types[c : c + x]:
            rules.need(self, t.ndim > 0 and t.shape[0] == self.length, f"{t!r} is scanned in {self.length} steps")

    def graphs(self):
        return (self.body,)

    def with_graphs(self, body):
        return Scan(body, self.carried, self.scanned, self.length, self.reverse)

    def _with_sizes(self, change):
        return Scan(self.body, self.carried, self.scanned, change(self.length), self.reverse)


@register
class While(Region):
    """`maximum`: most iterations, or None."""

    name = "while"
    cond: Graph
    body: Graph
    carried: int
    maximum: object  # Dim | None

    def infer(self, *types: Type) -> tuple[Type, ...]:
        iteration = Type(dtypes.int64, ())
        self._check(self.cond, [*types, iteration])
        self._check(self.body, [*types, iteration])
        made = [v.type for v in self.body.outputs]
        if len(made) != self.carried or not all(_agree(a, b) for a, b in zip(types, made, strict=False)):
            raise InternalError(
                self.name, f"it carries {list(types[: self.carried])}, but its body makes {made} of them"
            )
        return (*made, iteration)

    def rule(self, *types: Type):
        made = [None if v is None else v.type for v in self.cond.outputs]
        fits = len(made) == 1 and made[0] is not None and made[0].dtype is dtypes.bool_ and not made[0].shape
        rules.allowed(self, fits, f"its condition is {made}; it must be a single bool")
        fits = 0 <= self.carried <= len(types) and None not in self.body.outputs
        rules.allowed(self, fits, f"it carries {self.carried}, of {len(types)} operands")
        if self.maximum is not None:
            rules.size(self, "maximum", self.maximum)

    def graphs(self):
        return (self.cond, self.body)

    def with_graphs(self, cond, body):
        return While(cond, body, self.carried, self.maximum)

    def _with_sizes(self, change):
        return While(self.cond, self.body, self.carried, None if self.maximum is None else change(self.maximum))


@register
class Block(Region):
    """`size`: the symbol whose value the first input (0-d int64) is."""

    name = "block"
    body: Graph
    size: object  # Sym

    def infer(self, size: Type, *args: Type) -> tuple[Type, ...]:
        self._check(self.body, list(args))
        return tuple(v.type for v in self.body.outputs)

    def rule(self, *types: Type):
        fits = types and types[0].dtype is dtypes.int64 and not types[0].shape
        rules.allowed(self, fits, "its first operand must be a single int64, the size")
        rules.allowed(self, None not in self.body.outputs, "its graph does not give all of its results")
        rules.size(self, "size", self.size)

    def graphs(self):
        return (self.body,)

    def with_graphs(self, body):
        return Block(body, self.size)

    def _with_sizes(self, change):
        return Block(self.body, change(self.size))


# -- making them


def region_graph(symbols: Symbols, name: str, types: list[Type], fn) -> Graph:
    """The graph of fn(*values) -> values (None among them stays None), for inputs of these types."""
    graph = Graph(symbols, name)
    with Builder(graph) as builder:
        inputs = [add_input(builder, Type(t.dtype, t.shape, t.weak)) for t in types]
        graph.outputs = list(fn(*inputs))
    return graph


def substituted(graph: Graph, change) -> Graph:
    """The graph of a region with `change` applied to its sizes, in the symbols of the graph being built."""
    symbols = current_builder().graph.symbols if is_tracing() else graph.symbols
    types = [Type(v.dtype, change(v.type.shape), v.type.weak) for v in graph.inputs]

    def fn(*inputs):
        made = dict(zip(graph.inputs, inputs, strict=True))
        copy_nodes(graph.nodes, made, lambda op: op.substitute(change))
        return [None if v is None else made[v] for v in graph.outputs]

    return region_graph(symbols, graph.name, types, fn)


def copy_nodes(nodes, made: dict[Value, Value], change=lambda op: op):
    """Rebuilds nodes in the current builder on the values that `made` has for their inputs; adds theirs to it."""
    builder = current_builder()
    around = current_source()
    copies: dict = {}
    with source_scope(around) as scope:
        for node in nodes:
            if node.op.is_input:
                continue
            scope.set(node.source or around)
            for n in node.control:
                if n not in copies and n.outputs and n.outputs[0] in made:
                    copies[n] = (made[n.outputs[0]].node,)
            new = builder.again(node, tuple([made[v] for v in node.inputs]), copies, change(node.op))
            made.update(zip(node.outputs, new.outputs, strict=True))
