"""Whole loops as one kernel: a While whose variables are single elements, kept in registers.

The runtime calls the kernel until the condition fails; a call makes at most CHUNK iterations, so that a loop can be interrupted.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.buffer import input_buffer, is_one
from tandem.codegen.emit import Emitter
from tandem.codegen.expr import compute_dtype
from tandem.codegen.loops import Kernel, Repeat, Store
from tandem.codegen.schedule import KernelStep, Part, Schedule
from tandem.graph.ir import Builder, Graph, Type
from tandem.ops.create import Constant, Iota, RandomBits, Size
from tandem.ops.define import Elementwise, Input, Movement, add_input
from tandem.ops.index import Gather
from tandem.ops.region import While

CHUNK = 1 << 22
_SCALARS = (Elementwise, Movement, Gather, Constant, Size, Iota, RandomBits, Input)
_DTYPES = (dtypes.bool_, dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)


def fits_one_kernel(op: While, resolve) -> bool:
    for v in [*op.body.outputs, *op.cond.outputs]:
        if v.dtype not in _DTYPES or not all(is_one(resolve(d)) for d in v.type.shape):
            return False
    return all(isinstance(node.op, _SCALARS) for graph in op.graphs() for node in graph.nodes)


def repeat_part(op: While, layouts, resolve, make_kernel=Kernel, on_host=False) -> Part:
    """Inputs: carried values, constants, iterations so far; then where these go: carried values, iterations, the condition.

    on_host: iterations so far come with the launch of a kernel on a device, which make_kernel makes.
    """
    graph = Graph(op.body.symbols, "while")
    builder = Builder(graph)
    types = [v.type for v in op.body.inputs]
    targets = [*(v.type for v in op.body.outputs), Type(dtypes.int64, ()), Type(dtypes.bool_, ())]
    for t in [*types, *targets]:
        add_input(builder, Type(t.dtype, t.shape))
    shape_of = lambda v: tuple(resolve(d) for d in v.type.shape)
    memory = [
        input_buffer(v.dtype, shape_of(v), i, layouts[i] if i < len(layouts) else None, resolve)
        for i, v in enumerate(graph.inputs)
    ]
    memory[len(types) - 1].on_host = on_host
    buffer_of = {v: memory[i] for g in op.graphs() for i, v in enumerate(g.inputs)}
    e = Emitter(resolve, shape_of, buffer_of, set(), {})
    b = e.b
    zero = lambda v: (e.forms.zero,) * len(v.type.shape)
    carried, last = op.carried, len(types) - 1
    starts = [e.emit(op.body.inputs[i], zero(op.body.inputs[i])) for i in range(carried)]
    start = e.emit(op.body.inputs[last], ())
    e._memo.clear()  # from here on these are variables, not what lies in memory
    scalars = [b.make("scalar", (), compute_dtype(op.body.inputs[i].dtype), i) for i in range(carried)]
    counter = b.make("scalar", (), dtypes.int64, carried)
    goes_on = b.make("scalar", (), dtypes.bool_, carried + 1)
    for g in op.graphs():
        e.given.update(zip(g.inputs, scalars, strict=False))
        e.given[g.inputs[last]] = counter
    condition = e.emit(op.cond.outputs[0], zero(op.cond.outputs[0]))
    updates = [e.emit(v, zero(v)) for v in op.body.outputs]
    limit = start + CHUNK
    if op.maximum is not None:
        limit = b.min(limit, e.dim(resolve(op.maximum)))
    results = [*scalars, counter, goes_on]
    first = len(types)
    stores = [
        Store(e.slot(memory[first + i]), e.dim(0), b.cast(r, memory[first + i].dtype)) for i, r in enumerate(results)
    ]
    body = [Repeat(starts, updates, condition, start, limit), *stores]
    linear = [e.settle(f, []) for f in e.linears]
    kernel = make_kernel("while", [x.dtype for x in e.buffers], e.locals, linear, body)
    if on_host:
        kernel.by_value = frozenset(i for i, x in enumerate(e.buffers) if x.on_host)
    nodes = [n for g in op.graphs() for n in g.nodes if not isinstance(n.op, Input)]
    step = KernelStep(
        kernel, e.buffers, tuple(e.ints), 1, 1, 0.0, nodes, [memory[first + i] for i in range(len(results))]
    )
    return Part(graph, Schedule([step], {}))
