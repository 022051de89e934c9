"""Regions from bodies: what a captured function and one of a deferred graph have in common.

A *body* is what one iteration or branch computes. It has `random`, whether it samples, and
`trace(inputs, consts, draws) -> results`, which builds it from values of the graph around which a region's graph is being made.
"""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError
from tandem.graph.ir import Type, Value, current_builder
from tandem.graph.symbolic import Dim, maximum
from tandem.ops.region import Cond, Scan, While, region_graph

_INT = Type(dtypes.int64, ())
UNBOUNDED_DRAWS = 2**32  # counters that a loop takes whose number of iterations nobody knows before


class Draws:
    """Random numbers inside a region: the same as if its iterations ran one after the other.

    An iteration's draws follow those of the one before. Has what operators expect of a generator while they are traced.
    """

    def __init__(self, seed: Value, start: Value, stride: Value | None = None, position: Value | None = None):
        self.seed = seed
        self._start = start if stride is None else F.Add()(start, F.Mul()(position, stride))
        self.used: Dim = 0

    def at(self, offset: Dim) -> Value:
        return (
            self._start if type(offset) is int and offset == 0 else F.Add()(self._start, F.Size(offset, dtypes.int64)())
        )

    def take(self, count: Dim) -> Value:
        offset = self.at(self.used)
        self.used = self.used + count
        return offset


def _size(n: Dim) -> Value:
    return F.Size(n, dtypes.int64)()


def _same_types(name: str, before: list[Value], after: list[Value]):
    """Asks whether carried values keep their sizes, which also teaches that these are one."""
    for i, (a, b) in enumerate(zip(before, after, strict=False)):
        if a.ndim != b.ndim or a.dtype is not b.dtype or any(m != n for m, n in zip(a.shape, b.shape, strict=True)):
            raise ShapeError(name, f"carried value {i} is {a.type!r} before an iteration and {b.type!r} after it")


def _results(results) -> list[Value]:
    return [results] if isinstance(results, Value) else list(results)


def make_cond(bodies, index: Value, args: list[Value], consts: list[Value], generator) -> list[Value]:
    symbols = current_builder().graph.symbols
    random = any(b.random for b in bodies)
    operands = [*args, *consts]
    types = [v.type for v in operands] + [_INT, _INT] * random
    used: Dim = 0
    branches = []
    for i, body in enumerate(bodies):
        taken = []

        def fn(*values, body=body, taken=taken):
            draws = Draws(*values[len(operands) :]) if random else None
            results = body.trace(list(values[: len(args)]), list(values[len(args) : len(operands)]), draws)
            taken.append(draws.used if random else 0)
            return results

        branches.append(region_graph(symbols, f"branch {i}", types, fn))
        used = maximum(used, taken[0])
    if random:
        operands += [generator.seed, generator.take(used)]
    return _results(Cond(tuple(branches))(index, *operands))


def make_scan(body, init, xs, consts, length: Dim, reverse: bool, generator) -> list[Value]:
    symbols = current_builder().graph.symbols
    operands = [*init, *xs, *consts]
    types = [*(v.type for v in init), *(Type(v.dtype, v.shape[1:]) for v in xs), *(v.type for v in consts)]
    types += [_INT] * 3 * body.random
    used: Dim = 0

    def fn(*values):
        nonlocal used
        at = len(init) + len(xs)
        draws = Draws(*values[len(operands) : -1], values[-1]) if body.random else None
        results = body.trace([*values[:at], values[-1]], list(values[at : len(operands)]), draws)
        _same_types("scan", values[: len(init)], results)
        used = draws.used if body.random else 0
        return results

    graph = region_graph(symbols, "body", [*types, _INT], fn)
    if body.random:
        operands += [generator.seed, generator.take(used * length), _size(used)]
    return _results(Scan(graph, len(init), len(xs), length, reverse)(*operands))


def make_while(cond, body, init, consts, most: Dim | None, generator) -> list[Value]:
    """The carried values at the end; without the count of iterations."""
    symbols = current_builder().graph.symbols
    operands = [*init, *consts]
    random = cond.random or body.random
    types = [*(v.type for v in operands), *[_INT] * 3 * random, _INT]
    used: Dim = 0

    def traced(part):
        def fn(*values):
            nonlocal used
            draws = None
            if random:
                draws = Draws(*values[len(operands) : -1], values[-1])
                draws.used = used  # those of the body come after those of the condition
            results = part.trace([*values[: len(init)], values[-1]], list(values[len(init) : len(operands)]), draws)
            if part is body:
                _same_types("while_loop", values[: len(init)], results)
            used = draws.used if random else 0
            return results

        return fn

    graphs = [region_graph(symbols, name, types, traced(part)) for name, part in (("cond", cond), ("body", body))]
    if random:
        count = UNBOUNDED_DRAWS if most is None else used * most
        operands += [generator.seed, generator.take(count), _size(used)]
    return list(While(*graphs, len(init), most)(*operands))[: len(init)]
