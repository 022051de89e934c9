"""Seconds of operators on this machine: measured once on parts of the sizes that a plan would have, and kept by machine.

What is fused into others when a program is compiled (elementwise operators, movements, reductions) has no time of its own, and
what is small takes as long as a measurement is uncertain: for those there is the roofline (costs.py).

Note [Cold operands]
An operator that is measured again and again finds its operands in the caches. In a step whose weights do not fit there it reads
them from memory, which for a few rows takes several times as long, and all ranks do so at once. So an operator is measured both
ways: as it comes, and with caches that something else has filled. What the second takes more is memory's, and grows with the ranks
that share it; the rest is the processor's.
"""

from __future__ import annotations

import json
import math
import os
import time

from tandem import _runtime
from tandem.autograd.modes import no_grad
from tandem.distributed.automatic.step import content_of
from tandem.distributed.automatic.strategies import Strategy
from tandem.distributed.sharding.layout import Grid
from tandem.distributed.sharding.propagate import Sharder
from tandem.graph.ir import Builder, Graph, Node, Type
from tandem.machine import disk_cache, tune
from tandem.ops.define import add_input
from tandem.random import randn
from tandem.tensors.constructors import zeros

FORMAT = b"tandem operator times 3\n"
RUNS = 3
SMALL = 1 << 18  # bytes of operands and results that are in no cache for a moment only
BUDGET = 20.0  # seconds that a process spends on measurements


class OpTimes:
    """by content: seconds of operators on operands of some types, in caches and not (Note [Cold operands]).

    slower, memory_slower: how many times as long they, and what they wait for memory, take while all ranks compute; they are
    measured on one that is alone
    """

    def __init__(self, path: str = "", budget: float = BUDGET, slower: float = 1.0, memory_slower: float = 1.0):
        self.path, self.budget, self.slower, self.memory_slower = path, budget, slower, memory_slower
        self.known: dict[str, tuple[float, float]] = _load(path)
        self.measured = 0  # by this process, in `spent` seconds
        self.spent, self._saved = 0.0, len(self.known)
        self._keys: dict = {}

    @classmethod
    def of_machine(cls, slower: float = 1.0, memory_slower: float = 1.0) -> OpTimes:
        """What is kept for this machine and so many threads."""
        return cls(tune.machine_file("operators"), slower=slower, memory_slower=memory_slower)

    def seconds(self, node: Node, strategy: Strategy, grid: Grid, cold: bool = False) -> float | None:
        """Of a rank's part of an operator; None for those that are not measured. cold: whether its operands are in no cache."""
        if node.op.fuses or node.op.effect:
            return None
        key = node.op, tuple(v.type for v in node.inputs), strategy, grid.shape
        if key not in self._keys:
            graph = part_graph(node, strategy, grid)
            self._keys[key] = content_of(graph), graph
        content, graph = self._keys[key]
        if content not in self.known:
            if self.spent > self.budget:
                return None
            began = time.perf_counter()
            self.known[content] = measure(graph)
            self.measured += 1
            self.spent += time.perf_counter() - began
        warm, from_memory = self.known[content]
        return self.slower * warm + (self.memory_slower * max(from_memory - warm, 0.0) if cold else 0.0)

    def save(self):
        if self.path and len(self.known) > self._saved:
            self.known = {**_load(self.path), **self.known}  # other processes may have written meanwhile
            disk_cache.write(self.path, FORMAT, json.dumps(self.known).encode())
            self._saved = len(self.known)


def part_graph(node: Node, strategy: Strategy, grid: Grid) -> Graph:
    """What a rank computes of an operator, by itself."""
    graph = Graph(name=node.op.name)
    _runtime.enter_trace()
    try:
        with Builder(graph) as builder:
            given = [
                (add_input(builder, Type(v.dtype, grid.local_shape(v.shape, p))), p)
                for v, p in zip(node.inputs, strategy.inputs, strict=True)
            ]
            graph.outputs = [v for v, _ in Sharder(grid, strict=False)._node(node, given)]
    finally:
        _runtime.exit_trace()
    return graph


def measure(graph: Graph) -> tuple[float, float]:
    """The least times of a graph, in caches and not, without what calling any graph takes."""
    given = [
        randn(*v.shape, dtype=v.dtype) if v.dtype.is_inexact else zeros(v.shape, dtype=v.dtype) for v in graph.inputs
    ]
    warm = max(_least(graph, given) - call_time(), 1e-7)
    if sum(math.prod(v.shape) * v.dtype.itemsize for v in (*graph.inputs, *graph.outputs)) < SMALL:
        return warm, warm
    return warm, max(_least(graph, given, cold=True) - call_time(), warm)


def _least(graph: Graph, given: list, runs: int = RUNS, cold: bool = False) -> float:
    found = []
    other = zeros((caches() // 2,)) if cold else None  # twice as much, in bytes
    with no_grad():
        for _ in range(runs + 1):
            if cold:
                (other + 1.0).data_ptr()
            began = time.perf_counter()
            for result in graph.run(*given):
                result.data_ptr()  # until it is computed
            found.append(time.perf_counter() - began)
    return min(found[1:])


def caches() -> int:
    """Bytes of the processor's largest cache."""
    name = "SC_LEVEL3_CACHE_SIZE"
    return (os.sysconf(name) if name in os.sysconf_names else 0) or 32 << 20


_empty: list[float] = []


def call_time() -> float:
    """Seconds of running a graph that computes next to nothing."""
    if not _empty:
        graph = Graph(name="nothing")
        one = zeros((1,))
        _runtime.enter_trace()
        try:
            with Builder(graph) as builder:
                value = add_input(builder, Type(one.dtype, (1,)))
                graph.outputs = [value + value]
        finally:
            _runtime.exit_trace()
        _empty.append(_least(graph, [one], 20))
    return _empty[0]


def _load(path: str) -> dict[str, tuple[float, float]]:
    content = disk_cache.read(path, FORMAT) if path else None
    if content is None:
        return {}
    try:
        return {str(k): (float(warm), float(cold)) for k, (warm, cold) in json.loads(content).items()}
    except (ValueError, TypeError, AttributeError):
        return {}
