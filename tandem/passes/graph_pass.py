"""@graph_pass: what every pass has in common. It can be skipped, timed, verified and printed by its name.

TANDEM_SKIP=simplify    leaves it out
TANDEM_PRINT=simplify   prints the graph that it gives
TANDEM_CHECK=0          does not verify that graph
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

from tandem.graph.ir import Graph
from tandem.graph.timing import note_time, pass_times
from tandem.graph.verify import verify
from tandem.switches import CHECK, DEBUG, PRINT, SKIP

PASSES: dict[str, Callable[[Graph], Graph]] = {}
INSIDE: list[Callable[[Graph], Graph]] = []  # what graphs inside of regions go through, in order (pipeline.py)


def graph_pass(fn: Callable[[Graph], Graph]) -> Callable[[Graph], Graph]:
    """Makes a function graph -> graph a pass, known by the function's name. It must not change its input."""
    name = fn.__name__

    @functools.wraps(fn)
    def run(graph: Graph, verifies: bool = True) -> Graph:
        if name in SKIP:
            return graph
        started = time.perf_counter()
        result = fn(graph)
        seconds = time.perf_counter() - started
        if CHECK and verifies and result is not graph:
            verify(result, name, set(graph.nodes))
        note_time(name, seconds)
        if name in PRINT or DEBUG >= 3:
            print(f"== {name}: {len(graph.nodes)} -> {len(result.nodes)} nodes, {seconds * 1e3:.1f} ms\n{result}")
        return result

    PASSES[name] = run
    return run


def run_inside(graph: Graph) -> Graph:
    """The graph of a region's body after all passes (simplify_regions.py)."""
    if CHECK:
        verify(graph, known=set(graph.nodes))
    with pass_times():  # of their own: the pass around takes them as its time
        for run in INSIDE:
            graph = run(graph)
    return graph
