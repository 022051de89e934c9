"""Functions of one element of a matrix, given by its indices, as graphs over whole matrices: what flexible attention is told with.

Four axes (batch, head, row, column) are batched one after the other by the rules of vmap; what a function captures stays as it is.
Positions that a function looks up elsewhere are brought into range, since no error can come out of the middle of a kernel.
"""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.graph.ir import Graph, Type, Value, current_builder
from tandem.ops.define import Composite
from tandem.ops.flex_attention import inlined
from tandem.ops.index import CheckIndex
from tandem.ops.region import copy_nodes, region_graph
from tandem.passes.eliminate_dead import eliminate
from tandem.transforms.batching import Batcher, as_list

INDICES = 4
INDEX = dtypes.int32


def matrix_graph(body, consts: list[Value], shape: tuple, dtype, before: int) -> Graph:
    """(*matrices of `shape`, *consts) -> what a body gives, for all elements. `before`: how many elements of matrices it takes
    before the indices."""
    symbols = current_builder().graph.symbols
    one = [Type(dtype, ())] * before + [Type(INDEX, ())] * INDICES
    types = [*one, *(c.type for c in consts)]
    own = len(one)
    graph = region_graph(symbols, "element", types, lambda *v: body.trace(list(v[:own]), list(v[own:]), None))
    graph = _simple(graph)
    for axis in reversed(range(INDICES)):
        flags = [i < before or i == before + axis for i in range(len(types))]
        types = [Type(t.dtype, (shape[axis], *t.shape)) if f else t for t, f in zip(types, flags, strict=True)]
        graph = region_graph(symbols, "matrix", types, _batched(graph, shape[axis], flags))

    def whole(*inputs):
        indices = [F.Iota((n,), 0, INDEX)() for n in shape]
        return inlined(graph, [*inputs[:before], *indices, *inputs[before:]])

    return region_graph(symbols, "matrix", [*types[:before], *types[own:]], whole)


def _batched(graph: Graph, size, flags: list[bool]):
    def fn(*inputs):
        batcher = Batcher(size, "error")
        return [batcher.full(*made) for made in batcher.graph(graph, list(inputs), flags)]

    return fn


def _simple(graph: Graph) -> Graph:
    """The graph without composites, and without checks."""

    def fn(*inputs):
        made = dict(zip(graph.inputs, inputs, strict=True))
        for node in graph.nodes:
            given = [made[v] for v in node.inputs if v in made]
            if isinstance(node.op, Composite):
                made.update(zip(node.outputs, as_list(node.op.expand(*given)), strict=True))
            elif type(node.op) is CheckIndex:
                made[node.outputs[0]] = _in_range(node.op, given[0])
            else:
                copy_nodes([node], made)
        return [made[v] for v in graph.outputs]

    while any(isinstance(n.op, Composite) or type(n.op) is CheckIndex for n in graph.nodes):
        graph = region_graph(graph.symbols, graph.name, [v.type for v in graph.inputs], fn)
    return graph


def _in_range(op: CheckIndex, index: Value) -> Value:
    bound = F.Size(op.bound, index.dtype)()
    least = F.Neg()(bound) if op.negative else F.zeros_like(bound)
    one = F.ones_like(bound)
    return F.maximum(F.minimum(index, bound - one), least)


def only(graph: Graph, output: int) -> Graph:
    """The graph with one of its results."""
    result = Graph(graph.symbols, graph.name)
    result.nodes, result.inputs, result.outputs = list(graph.nodes), list(graph.inputs), [graph.outputs[output]]
    return eliminate(result)
