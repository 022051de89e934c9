"""Kernels over blocks of a matrix that never has memory as a whole, which a routine calls (Note [Block kernels] in
src/library/block_kernel.h): one for each graph of an operator such as attention.

A graph takes two such matrices of one shape, then what the kernel reads elsewhere; what it gives takes the place of the first, or
of the second for a kernel of gradients. All axes but the last count as rows.
"""

from __future__ import annotations

from tandem.codegen.buffer import Layout, input_buffer
from tandem.codegen.computes import Group
from tandem.codegen.epilogues import FIRST, LAST, PITCH, BlockNest
from tandem.codegen.loops import Loop, Store, expression_cost
from tandem.codegen.nest import ITEM, unroll_for
from tandem.codegen.schedule import BlocksStep, Part, Schedule
from tandem.graph.ir import Graph
from tandem.graph.symbolic import product

BLOCKS = 2


def blocks_step(lowering, node, layout) -> BlocksStep:
    """The call of a routine with a kernel for each graph of its operator. `layout`: of a buffer."""
    fusion, op = lowering.fusion, node.op
    ints, floats = op.attributes(*[v.type for v in node.inputs])
    inputs = [fusion.buffer_of[v] for v in node.inputs]
    outputs = [fusion.buffer_of[v] for v in node.outputs]
    first = op.leading + op.masked + bool(op.blocks)
    layouts = [layout(b) for b in inputs[first:]]
    parts = [
        _part(fusion, graph, layouts, 1 if graph is op.slope else 0) for graph in op.kernels() if graph is not None
    ]
    return BlocksStep(
        op.routine, inputs, outputs, tuple([fusion.resolve(d) for d in ints]), tuple(floats), node, parts, first
    )


def _part(fusion, graph: Graph, layouts: list[Layout | None], target: int) -> Part:
    """The kernel as a plan of its own, which takes the inputs of the graph; `target`: which of the blocks it writes."""
    value = graph.outputs[0]
    shape = fusion.shape_of(value)
    group = Group("elementwise", 0, shape)
    group.order = tuple(range(len(shape)))
    nest = BlockNest(fusion, group)
    e, b = nest.e, nest.e.b
    memory = [
        input_buffer(v.dtype, fusion.shape_of(v), i, None if i < BLOCKS else layouts[i - BLOCKS], fusion.resolve)
        for i, v in enumerate(graph.inputs)
    ]
    e.buffer_of = dict(zip(graph.inputs, memory, strict=True))
    *outer, vector = group.order
    here = e.linear(e.forms.make(0, {ITEM: PITCH, vector: 1}))
    for v, buffer in zip(graph.inputs[:BLOCKS], memory, strict=False):
        e.given[v] = b.widen(b.make("load", (here,), buffer.dtype, e.slot(buffer)))
    result = e.emit(value, tuple([e.forms.axis(a) for a in group.order]))
    body = [Store(e.slot(memory[target]), here, b.cast(result, memory[target].dtype))]
    nest.writes.append(memory[target])
    inner = Loop(vector, e.dim(FIRST), e.dim(LAST), body, "vector", unroll_for(expression_cost([result]), body))
    loop = nest.items([(v, nest.sizes[v]) for v in outer], [inner])
    step = nest.step([loop], [ITEM, *outer, vector], product(shape[:-1]), shape[-1], [result])
    step.ints = step.ints[3:]
    return Part(graph, Schedule([step], {}))
