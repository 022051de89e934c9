"""What backward saves and what it computes again.

Note [Saving]
Backward needs some values of the forward pass. Inputs and outputs of the operator are there anyway, so they cost nothing to
save. Elementwise and movement results are computed again from what is saved. Only results of reductions and library calls that
are neither input nor output are kept as extra memory, and casts that library calls of both passes read (mixed precision): they lie
in memory anyway. Python numbers and sizes travel as numbers. Values that only gradient
rules ask for, such as how many elements attain a maximum, are left to backward altogether.

A second backward function serves gradients of gradients: it computes extra results again too, from inputs and outputs only, so
that differentiating it follows every path.
"""

from __future__ import annotations

from tandem.graph.ir import Builder, Graph, Node, Value
from tandem.graph.substitution import symbol_indices
from tandem.ops.arithmetic import Cast
from tandem.ops.create import RandomBits
from tandem.ops.define import Elementwise, LibraryOp, Movement, add_input
from tandem.ops.linear import Linear
from tandem.ops.region import Region


class Partition:
    """saved values in the order backward takes them, and the backward graphs.

    Inputs of all graphs: gradients of the outputs (those that are differentiable), saved values, numbers.
    """

    lazy: Graph | None = None  # the first, with summands of weight gradients (lazy_sums.py):
    summands: list[list[int]] = ()  # their kinds, by gradient

    def __init__(self, saved: list[Value], numbers: list[Value], first: Graph, twice: Graph, sizes: list[int]):
        self.saved = saved
        self.numbers = numbers
        self.first = first
        self.twice = twice
        self.sizes = sizes  # indices of the symbols that the graphs mention


def partition(
    forward: Graph, grad_inputs: list[Value], results: list[Value | None], numbers: set[Value], computed: set[Node]
) -> Partition:
    """Splits a joint graph. `grad_inputs`: Values standing for the incoming gradients; `results`: gradients of the inputs;
    `computed`: the nodes that the forward pass runs."""
    after_gradient = _reached_from(forward.nodes, grad_inputs)
    available = set(forward.inputs) | set(forward.outputs)
    needed = _boundary(results, after_gradient)

    saved_first = _choose(needed, available, computed, _casts_of_both(forward, after_gradient, computed))
    saved_twice = _choose(needed, available, frozenset())
    everything = list(dict.fromkeys(saved_first + saved_twice))
    number_list = [v for v in everything if v in numbers]
    saved = [v for v in everything if v not in numbers]

    first = extract(forward, grad_inputs, saved, number_list, results, set(saved_first))
    twice = extract(forward, grad_inputs, saved, number_list, results, set(saved_twice))
    sizes = sorted(_symbols_of(first) | _symbols_of(twice))
    return Partition(saved, number_list, first, twice, sizes)


def saved_values(given: list[Value], outputs: list[Value], incoming: list[Value], results: list[Value], computed: set[Node],
                 nodes: list[Node]) -> list[Value]:  # fmt: skip
    """What a forward pass from `given` to `outputs` saves so that `results` can be had from gradients that come in. computed: the
    nodes whose results it may keep; nodes: all of both passes, in order."""
    after_gradient = _reached_from(nodes, incoming)
    came = set(incoming)
    needed = [v for v in _boundary(results, after_gradient) if v not in came]
    return _choose(needed, set(given) | set(outputs), computed)


def _reached_from(nodes: list[Node], values: list[Value]) -> set[Node]:
    start = set(values)
    reached: set[Node] = set()
    for node in nodes:
        if any(v in start or v.node in reached for v in node.inputs):
            reached.add(node)
    return reached


def _boundary(results, after_gradient: set[Node]) -> list[Value]:
    """Forward values that backward reads."""
    found: dict[Value, None] = {}
    seen: set[Node] = set()
    stack = [v for v in results if v is not None]
    while stack:
        value = stack.pop()
        if value.node not in after_gradient:
            found[value] = None
        elif value.node not in seen:
            seen.add(value.node)
            stack.extend(value.node.inputs)
    return list(found)


def _casts_of_both(forward: Graph, after_gradient: set[Node], computed: set[Node]) -> set[Value]:
    """Casts to smaller types that library calls read in the forward pass and again in backward."""

    def read_by_calls(nodes) -> set[Value]:
        return {
            v for node in nodes if isinstance(node.op, (LibraryOp, Linear)) for v in node.inputs
            if isinstance(v.node.op, Cast) and v.dtype.itemsize < v.node.inputs[0].dtype.itemsize
        }  # fmt: skip

    return read_by_calls(computed) & read_by_calls(n for n in forward.nodes if n in after_gradient)


def _choose(needed: list[Value], available: set[Value], may_keep, casts=frozenset()) -> list[Value]:
    """What to save so that all needed values can be had: of the nodes in `may_keep`, costly results as such, and `casts`."""
    saved: dict[Value, None] = {}
    seen: set[Value] = set()
    stack = list(reversed(needed))
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        op = value.node.op
        if op.is_input and value not in available:
            continue  # an incoming gradient
        if value in available or value in casts:
            saved[value] = None
        elif not value.node.inputs:
            continue  # constants, sizes, ramps
        elif (
            isinstance(op, (Elementwise, Movement))
            or op.checks
            or isinstance(op, RandomBits)
            or value.node not in may_keep
        ):
            stack.extend(reversed(value.node.inputs))
        else:
            saved[value] = None
    return list(saved)


def extract(forward: Graph, grad_inputs, saved, numbers, results, use: set[Value]) -> Graph:
    """The part of the joint graph that computes `results` from gradients and saved values."""
    graph = Graph(forward.symbols, forward.name + "_backward")
    builder = Builder(graph)
    made: dict[Value, Value] = {}
    with builder:
        for value in [*grad_inputs, *saved, *numbers]:
            fresh = add_input(builder, value.type)
            if value in use or value in grad_inputs:
                made[value] = fresh
        for node in _needed_nodes(results, made):
            if node.op.checks:  # forward has checked it
                made[node.outputs[0]] = made[node.inputs[0]]
                continue
            new = builder.add(node.op, tuple(made[v] for v in node.inputs))
            for old, fresh in zip(node.outputs, new.outputs, strict=True):
                made.setdefault(old, fresh)
    graph.outputs = [made[v] if v is not None else None for v in results]
    return graph


def _needed_nodes(results, made: dict) -> list[Node]:
    found: set[Node] = set()
    stack = [v for v in results if v is not None]
    while stack:
        value = stack.pop()
        if value in made or value.node in found:
            continue
        found.add(value.node)
        stack.extend(value.node.inputs)
    return sorted(found, key=lambda n: n.id)


def _symbols_of(graph: Graph) -> set[int]:
    found: set[int] = set()
    _collect_symbols(graph, found)
    origins = graph.symbols.origins
    return {i for i in found if origins[i][0] != "local"}  # those exist only inside a region


def _collect_symbols(graph: Graph, found: set[int]):
    for node in graph.nodes:
        for value in node.outputs:
            symbol_indices(value.type.shape, found)
        for field in node.op._fields:
            attribute = getattr(node.op, field)
            if field == "type":
                continue
            symbol_indices(attribute, found)
        if isinstance(node.op, Region):
            for part in node.op.graphs():
                _collect_symbols(part, found)
