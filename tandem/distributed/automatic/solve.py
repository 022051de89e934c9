"""The best strategy for every operator, as an integer program.

Note [The integer program]
Each node takes one strategy, each input of the graph one placement: 0/1 variables that add up to 1. An edge from a value to an
operand has a variable for each pair of placements, whose sums are those of its ends: it is 1 where the value is moved from the one
to the other. A value that several operators want in the same way is moved once, so what costs is the largest of their edges'
variables. What is minimised is seconds of computing and moving; what weights, gradients, optimiser state and saved values take is
bounded. The relaxation is tight enough that HiGHS mostly needs no branching; its bound is the certificate.
"""

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np

from tandem.distributed.automatic.costs import Costs
from tandem.distributed.automatic.step import FREE, WHOLE, Step
from tandem.distributed.automatic.strategies import Strategy, placements_of
from tandem.distributed.automatic.ties import ties_of
from tandem.distributed.sharding.layout import REPLICATE, Placements
from tandem.errors import UnsupportedError, ValueRangeError
from tandem.graph.ir import Graph, Node, Value

LEAST = 0.1  # seconds that the solver always has


@dataclasses.dataclass
class Solution:
    strategies: dict[Node, Strategy]
    placements: dict[Value, Placements]  # of inputs
    leaving: dict[int, Placements]  # of outputs that another stage takes, by position
    seconds: float
    bound: float  # no plan takes less
    optimal: bool


class Program:
    """Variables and rows of an integer program, as they come."""

    def __init__(self):
        self.costs: list[float] = []
        self.whole: list[bool] = []
        self.rows: list[tuple[dict[int, float], float, float]] = []

    def variable(self, cost: float = 0.0, whole: bool = True) -> int:
        self.costs.append(cost)
        self.whole.append(whole)
        return len(self.costs) - 1

    def row(self, terms: dict[int, float], low: float, high: float):
        self.rows.append((terms, low, high))

    def solve(self, time_limit: float, gap: float):
        try:
            from scipy import optimize, sparse
        except ImportError:
            raise UnsupportedError(
                "parallelize", "the solver comes with scipy, which is not installed", fix="pip install scipy"
            ) from None
        entries = [(r, i, v) for r, (terms, _, _) in enumerate(self.rows) for i, v in terms.items()]
        index = np.array([(r, i) for r, i, _ in entries]).T
        matrix = sparse.csr_array(
            (np.array([v for _, _, v in entries]), index), shape=(len(self.rows), len(self.costs))
        )
        limits = optimize.LinearConstraint(matrix, [low for _, low, _ in self.rows], [high for _, _, high in self.rows])
        scale = max(self.costs) or 1.0
        return scale, optimize.milp(
            np.array(self.costs) / scale, constraints=limits, integrality=np.array(self.whole, dtype=int),
            bounds=optimize.Bounds(0, 1), options={"time_limit": time_limit, "mip_rel_gap": gap},
        )  # fmt: skip


def solve(
    step: Step, costs: Costs, memory_limit: float | None, time_limit: float, gap: float, lies=None, kept: int = 1,
    recompute: bool = False, must: bool = False,
) -> Solution:  # fmt: skip
    """The best division of a step over a mesh.

    lies(position, placements): those that an input may have
    kept: of how many micro-batches activations are kept; recompute: whether only what comes in is kept of each
    must: whether the limit is for the solver only, not for writing its program
    """
    until = math.inf if must else time.monotonic() + time_limit
    made = _Encoder(step, costs, lies or (lambda position, placements: placements), until)
    made.encode(memory_limit, kept, recompute)
    scale, result = made.program.solve(time_limit if must else max(until - time.monotonic(), LEAST), gap)
    if result.x is None:
        raise ValueRangeError(
            "parallelize", f"no plan was found: {result.message}",
            fix="give more time (time_limit=), more memory (memory_limit=) or more ranks",
        )  # fmt: skip
    chosen = lambda variables: max(range(len(variables)), key=lambda i: result.x[variables[i]])
    strategies = {n: made.options[n][chosen(v)] for n, v in made.of_node.items()}
    placements = {v: made.inputs[v][chosen(x)] for v, x in made.of_input.items()}
    leaving = {i: options[chosen(x)] for i, (options, x) in made.leaving.items()}
    bound = result.mip_dual_bound * scale if result.mip_dual_bound is not None else 0.0
    return Solution(strategies, placements, leaving, float(result.fun * scale), float(bound), result.status == 0)


def replicated_solution(step: Step, costs: Costs) -> Solution:
    """Each rank does all: the only way on one rank."""
    costs.know(step.graph)
    whole = (REPLICATE,) * len(costs.grid.shape)
    strategies = {
        n: Strategy((whole,) * len(n.inputs), (whole,) * len(n.outputs), 1)
        for n in step.graph.nodes
        if not n.op.is_input
    }
    seconds = sum(costs.compute(n, s) for n, s in strategies.items())
    seconds += sum(costs.send(step.graph.outputs[i].type, whole) for i, w in enumerate(step.wants) if w == FREE)
    seconds += sum(costs.update(step.graph.inputs[i].type, whole) for i in step.weights) / step.micro_batches
    leaving = {i: whole for i, w in enumerate(step.wants) if w == FREE}
    return Solution(strategies, dict.fromkeys(step.graph.inputs, whole), leaving, seconds, seconds, True)


class _Encoder:
    def __init__(self, step: Step, costs: Costs, lies, until: float):
        self.step, self.costs, self.lies, self.until = step, costs, lies, until
        self.graph: Graph = step.graph
        costs.know(step.graph)
        self.program = Program()
        self.options: dict[Node, list[Strategy]] = {}
        self.of_node: dict[Node, list[int]] = {}
        self.inputs: dict[Value, list[Placements]] = {}
        self.of_input: dict[Value, list[int]] = {}
        self.leaving: dict[int, tuple[list[Placements], list[int]]] = {}
        # A value's placements, and the variables that give them; what each reader wants, by the same.
        self.ends: dict[Value, dict[Placements, list[int]]] = {}
        self.wants: dict[Value, list[tuple[dict[Placements, list[int]], bool]]] = {}
        self.tied: dict[int, tuple[list, list[int]]] = {}  # options and variables of a class (Note [Tied layers])
        self.moved: dict[tuple, list[tuple[int, float]]] = {}

    def _variables(self, tie: int, options: list, costs: list[float]) -> list[int]:
        """One for each option, of which one is taken; those of the class, if it has some already."""
        if tie in self.tied:
            for x, cost in zip(self.tied[tie][1], costs, strict=True):
                self.program.costs[x] += cost
        else:
            variables = [self.program.variable(cost) for cost in costs]
            self.program.row(dict.fromkeys(variables, 1.0), 1, 1)
            self.tied[tie] = options, variables
        return self.tied[tie][1]

    def encode(self, memory_limit: float | None, kept: int, recompute: bool):
        scalars = {v for v in self.graph.inputs if not v.ndim}
        trained, once = set(self.step.weights), self.step.micro_batches
        whole = (REPLICATE,) * len(self.costs.grid.shape)
        for position, v in enumerate(self.graph.inputs):
            self.inputs[v] = [whole] if v in scalars else self.lies(position, placements_of(v, self.costs.grid))
        kinds = {v: (i in trained, tuple(self.inputs[v])) for i, v in enumerate(self.graph.inputs)}
        self.ties = ties_of(self.step, kinds)
        for position, v in enumerate(self.graph.inputs):
            update = lambda p, v=v, i=position: self.costs.update(v.type, p) / once if i in trained else 0.0
            self.of_input[v] = self._variables(self.ties[v.node], self.inputs[v], [update(p) for p in self.inputs[v]])
            self.ends[v] = {p: [x] for p, x in zip(self.inputs[v], self.of_input[v], strict=True)}
        for node in self.graph.nodes:
            if not node.op.is_input:
                self._node(node)
        self._outputs(whole)
        for v, readers in self.wants.items():
            self._moves(v, readers)
        if memory_limit is not None:
            self._memory(memory_limit, kept, recompute)

    def _node(self, node: Node):
        if time.monotonic() > self.until:
            raise ValueRangeError(
                "parallelize", "no plan was found: the time is over", fix="give more time (time_limit=)"
            )
        tie = self.ties[node]
        options = self.tied[tie][0] if tie in self.tied else self.costs.memo.strategies(node)
        self.options[node] = options
        variables = self._variables(tie, options, [self.costs.compute(node, s) for s in options])
        self.of_node[node] = variables
        for i, v in enumerate(node.inputs):
            self._want(v, [(s.inputs[i], x) for s, x in zip(options, variables, strict=True)])
        for i, v in enumerate(node.outputs):
            ends = self.ends.setdefault(v, {})
            for s, x in zip(options, variables, strict=True):
                ends.setdefault(s.outputs[i], []).append(x)

    def _check_time(self):
        if time.monotonic() > self.until:
            raise ValueRangeError(
                "parallelize", "no plan was found: the time is over", fix="give more time (time_limit=)"
            )

    def _want(self, v: Value, pairs, once: bool = False):
        wanted: dict[Placements, list[int]] = {}
        for p, x in pairs:
            wanted.setdefault(p, []).append(x)
        self.wants.setdefault(v, []).append((wanted, once))

    def _outputs(self, whole: Placements):
        """The loss is wanted whole, a gradient as its weight lies, once a step, what other stages take in any way."""
        always = self.program.variable()
        self.program.row({always: 1.0}, 1, 1)
        for i, (v, want) in enumerate(zip(self.graph.outputs, self.step.wants, strict=True)):
            if want == WHOLE:
                self._want(v, [(whole, always)])
            elif want == FREE:
                options = placements_of(v, self.costs.grid) if v.ndim else [whole]
                variables = [self.program.variable(self.costs.send(v.type, p)) for p in options]
                self.program.row(dict.fromkeys(variables, 1.0), 1, 1)
                self.leaving[i] = options, variables
                self._want(v, zip(options, variables, strict=True))
            else:
                weight = self.graph.inputs[want]
                pairs = zip(self.inputs[weight], self.of_input[weight], strict=True)
                self._want(v, pairs, once=self.step.micro_batches > 1)

    def _moves(self, v: Value, readers: list[tuple[dict, bool]]):
        """Edges from a value to all that read it; where layers are tied, those of equal values are the same."""
        self._check_time()
        ends = self.ends[v]
        key = v.type, _as_key(ends), tuple((_as_key(wanted), once) for wanted, once in readers)
        if key in self.moved:
            for paid, cost in self.moved[key]:
                self.program.costs[paid] += cost
            return
        self.moved[key] = self.paid = []
        shared: dict[tuple, int] = {}
        for wanted, once in readers:
            if len(ends) == 1 and set(wanted) == set(ends):
                continue
            into: dict[Placements, dict[int, float]] = {q: {} for q in wanted}
            for p, sources in ends.items():
                out: dict[int, float] = {}
                for q in wanted:
                    edge = self.program.variable(whole=False)
                    out[edge] = into[q][edge] = 1.0
                    self._pay(v, p, q, edge, {} if once else shared, self.step.micro_batches if once else 1)
                self.program.row({**out, **dict.fromkeys(sources, -1.0)}, 0, 0)
            for q, terms in into.items():
                self.program.row({**terms, **dict.fromkeys(wanted[q], -1.0)}, 0, 0)

    def _pay(self, v: Value, p: Placements, q: Placements, edge: int, shared: dict, times: int):
        cost = self.costs.move(v.type, p, q) / times if p != q else 0.0
        if cost == 0.0:
            return
        paid = shared.get((p, q))
        if paid is None:
            paid = shared[p, q] = self.program.variable(cost, whole=False)
            self.paid.append((paid, cost))
        self.program.row({paid: 1.0, edge: -1.0}, 0, 1)

    def _memory(self, limit: float, kept: int, recompute: bool):
        terms: dict[int, float] = {}
        for position in self.step.weights:
            v = self.graph.inputs[position]
            for p, x in zip(self.inputs[v], self.of_input[v], strict=True):
                terms[x] = terms.get(x, 0.0) + (2 + self.costs.state) * self.costs.local_bytes(v.type, p)
        values = kept_values(self.step, recompute)
        for v, ends in self.ends.items():
            if v in values:
                for p, sources in ends.items():
                    for x in sources:
                        terms[x] = terms.get(x, 0.0) + kept * self.costs.local_bytes(v.type, p)
        self.program.row({x: b / limit for x, b in terms.items()}, 0, 1)


def _as_key(variables: dict[Placements, list[int]]) -> tuple:
    return tuple((p, tuple(xs)) for p, xs in variables.items())


def kept_values(step: Step, recompute: bool = False) -> set[Value]:
    """What the forward pass computes and backward reads; with recompute what came in."""
    if recompute:
        return {step.graph.inputs[i] for i in step.arriving if i < len(step.graph.inputs)}
    forward = step.forward_nodes()
    later = [n for n in step.graph.nodes if n not in forward]
    return {v for n in later for v in n.inputs if v.node in forward and not v.node.op.is_input and v.ndim}


def memory_of_solution(step: Step, costs: Costs, solution: Solution, kept: int = 1, recompute: bool = False) -> float:
    """What the program's memory row counts: weights, gradients and state, and what is kept for backward."""
    lies = dict(solution.placements)
    for node, s in solution.strategies.items():
        lies.update(zip(node.outputs, s.outputs, strict=True))
    size = lambda v: costs.local_bytes(v.type, lies[v])
    weights = sum(size(step.graph.inputs[i]) for i in step.weights)
    return (2 + costs.state) * weights + kept * sum(map(size, kept_values(step, recompute)))
