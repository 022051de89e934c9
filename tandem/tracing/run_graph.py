"""Running a graph as such: one that was saved and loaded, or that a compiled function gave."""

from __future__ import annotations

import weakref

from tandem import _runtime
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Graph, checking, replay
from tandem.graph.substitution import substitute
from tandem.graph.symbolic import hint
from tandem.ops.define import ParameterSpec, Role, make_function
from tandem.program.report import Report, check_budget
from tandem.tensors.constructors import asarray

_PARAMETERS = [ParameterSpec("inputs", "tensors", True, None, False), ParameterSpec("ints", "ints", True, None, False)]
_runners: weakref.WeakKeyDictionary[Graph, dict[float | None, Runner]] = weakref.WeakKeyDictionary()


def run_graph(graph: Graph, given: tuple, memory_budget: float | None = None) -> list:
    """Results of the graph; what it writes into inputs is written.

    After the inputs come the integers that sizes are computed with besides; those that are left out are what they were when the
    graph was made.
    """
    return _runner(graph, check_budget("run", memory_budget))(given)


def reports_of(graph: Graph) -> list[Report]:
    """What the graph was compiled to when it ran as such."""
    return [runner.report for runner in _runners.get(graph, {}).values()]


def _runner(graph: Graph, memory_budget: float | None) -> Runner:
    """What ran this graph before, unless it was changed since."""
    runners = _runners.setdefault(graph, {})
    found = runners.get(memory_budget)
    if found is None or found.parts != _parts(graph):
        found = runners[memory_budget] = Runner(graph, memory_budget)
    return found


def _parts(graph: Graph) -> tuple:
    return tuple(graph.inputs), tuple(graph.nodes), tuple(graph.outputs), tuple(graph.mutations)


class Runner:
    """An operator function of what a graph computes: each signature is compiled once."""

    def __init__(self, graph: Graph, memory_budget: float | None):
        self.parts = _parts(graph)
        self.name = graph.name or "graph"
        self.symbols = graph.symbols
        self.inputs, nodes, self.outputs, self.mutations = self.parts
        self.from_file = graph.from_file
        self.whole = Graph(graph.symbols, graph.name)
        self.whole.inputs, self.whole.nodes = self.inputs, nodes
        self.whole.outputs = [*self.outputs, *(value for _, value in self.mutations)]
        self.integers = sorted(o[1] for o in graph.symbols.origins if o[0] == "int")
        self.report = Report(memory_budget)
        self.function = make_function(
            self.name, self._body, _PARAMETERS, role=Role(whole=True, report=self.report), digest=None
        )

    def __call__(self, given: tuple) -> list:
        count = len(self.inputs)
        self._check_count(given)
        tensors = [self._tensor(position, x) for position, x in enumerate(given[:count])]
        before = [hint for hint, o in zip(self.symbols.hints, self.symbols.origins, strict=True) if o[0] == "int"]
        integers = [*given[count:], *before[len(given) - count :]]
        with _runtime.PauseCapture():
            results = self.function(tensors, integers)
        results = list(results) if isinstance(results, tuple) else [results]
        for (position, _), new in zip(self.mutations, results[len(self.outputs) :], strict=True):
            given[position].detach().copy_(new)
        return results[: len(self.outputs)]

    def _check_count(self, given: tuple):
        count, integers = len(self.inputs), len(self.integers)
        if not count <= len(given) <= count + integers:
            more = f", and up to {integers} integers" if integers else ""
            kinds = ", ".join(repr(v.type) for v in self.inputs[:6]) + (", ..." if count > 6 else "")
            raise ValueRangeError("run", f"the graph has {count} inputs ({kinds}){more}; {len(given)} were given")

    def _tensor(self, position: int, x) -> _runtime.Tensor:
        value = self.inputs[position]
        t = x if isinstance(x, _runtime.Tensor) else asarray(x, dtype=value.dtype)
        if t.dtype is not value.dtype:
            raise DTypeError("run", f"input {position} is {value.type!r}; a tensor of {t.dtype} was given")
        known = all(not isinstance(n, int) or n == m for n, m in zip(value.shape, t.shape, strict=False))
        if t.ndim != value.ndim or not known:
            raise ShapeError("run", f"input {position} is {value.type!r}; a tensor of shape {tuple(t.shape)} was given")
        return t.detach()

    def _body(self, inputs, ints):
        # A size of 1 is literal, as everywhere: what is broadcast relies on it.
        integers = dict(zip(self.integers, (1 if i == 1 else i for i in ints), strict=True))
        sizes = {}
        for index, origin in enumerate(self.symbols.origins):
            if origin[0] == "size":
                sizes[index] = inputs[origin[1]].shape[origin[2]]
            elif origin[0] == "int":
                sizes[index] = integers[origin[1]]
            elif origin[0] != "local":
                sizes[index] = self.symbols.hints[index]
        for relation, expression in self.symbols.guards:
            difference = substitute(expression, sizes)
            if relation == "==" and difference != 0:
                raise ShapeError("run", f"the graph relies on sizes that are not given ({hint(difference)} too many)")
        with checking(self.from_file):
            return tuple(replay(self.whole, list(inputs), sizes))
