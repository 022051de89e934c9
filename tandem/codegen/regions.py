"""Regions as steps: their graphs are lowered like any other, with memory for results among the inputs.

A loop chooses at each iteration what its body reads and writes; so a body's results are stored into inputs ("targets"), which lie
after its own: kernels write there directly wherever that can be seen to be right.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.block_kernels import blocks_step
from tandem.codegen.buffer import Buffer, Layout, allocate, dense_strides, is_one, same
from tandem.codegen.lowering import Lowering
from tandem.codegen.repeat import fits_one_kernel
from tandem.codegen.schedule import Part, RegionStep
from tandem.graph.ir import Builder, Graph, Type
from tandem.ops.define import add_input
from tandem.ops.flex_attention import FlexAttention, FlexAttentionBackward
from tandem.ops.region import Block, Cond, Scan, While


def region_steps(lowering: Lowering, node) -> list:
    """The step of a region, after copies of what it must find in row-major order.

    On a device, numbers of the host are copied there first, so that a recorded graph need not know of them; only what decides how
    to go on is read from the host if it is there. The position in a loop comes with each launch.
    """
    fusion, target, op = lowering.fusion, lowering.target, node.op
    if isinstance(op, (FlexAttention, FlexAttentionBackward)):
        return [blocks_step(lowering, node, _layout)]
    copy = target.nests()["copy"]
    steps: list = []
    inputs = [fusion.buffer_of[v] for v in node.inputs]
    outputs = [fusion.buffer_of[v] for v in node.outputs]
    first = 1 if isinstance(op, (Cond, Block)) else 0  # the index or size
    carried = op.carried if isinstance(op, (Scan, While)) else 0
    for i in range(len(inputs)):
        if (i < carried and not _row_major(inputs[i])) or (inputs[i].on_host and i >= first):
            dense = allocate(inputs[i].dtype, inputs[i].shape)
            steps.append(copy(fusion, inputs[i], dense, node))
            inputs[i] = dense
    layouts: list[Layout | None] = [None if i < carried else _layout(b) for i, b in enumerate(inputs)][first:]
    if isinstance(op, Scan):
        for i in range(carried, carried + op.scanned):
            layouts[i] = _row_layout(inputs[i])
    if isinstance(op, (Scan, While)):
        layouts.append(None)  # the position
    if lowering.inside is not None:
        op = op.with_graphs(*map(lowering.inside, op.graphs()))
    if isinstance(op, While) and fits_one_kernel(op, fusion.resolve):
        steps.append(RegionStep(op, inputs, outputs, [target.repeat_part(op, layouts, fusion.resolve)], node))
        return steps
    parts = []
    for graph in op.graphs():
        placed = with_targets(graph)
        position = {placed.inputs[len(graph.inputs) - 1]} if isinstance(op, (Scan, While)) else set()
        lowered = lowering.lower_part(placed, layouts + [None] * len(graph.outputs), on_host=position)
        parts.append(Part(placed, lowered))
    steps.append(RegionStep(op, inputs, outputs, parts, node))
    return steps


def with_targets(graph: Graph) -> Graph:
    """The graph with its results stored into inputs of their own, in order; None is stored nowhere."""
    result = Graph(graph.symbols, graph.name)
    result.nodes = list(graph.nodes)
    result.inputs = list(graph.inputs)
    builder = Builder(result)
    for v in graph.outputs:
        target = add_input(builder, Type(v.dtype, v.shape) if v is not None else _NOTHING)
        if v is not None:
            result.mutations.append((target.op.position, v))
    return result


_NOTHING = Type(dtypes.bool_, ())


def _row_major(buffer: Buffer) -> bool:
    return all(is_one(n) or same(s, t) for n, s, t in zip(buffer.shape, buffer.strides, dense_strides(buffer.shape)))


def _layout(buffer: Buffer) -> Layout | None:
    return None if _row_major(buffer) else Layout(buffer.strides, buffer.unit, buffer.order)


def _row_layout(buffer: Buffer) -> Layout | None:
    """How a row of the buffer lies in memory."""
    shape, strides = buffer.shape[1:], buffer.strides[1:]
    if all(is_one(n) or same(s, t) for n, s, t in zip(shape, strides, dense_strides(shape))):
        return None
    order = None
    if buffer.order is not None and buffer.order[0] == 0:
        order = tuple(a - 1 for a in buffer.order[1:])
    return Layout(strides, buffer.unit - 1 if buffer.unit else None, order)
