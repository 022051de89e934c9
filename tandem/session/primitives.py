"""The six primitives that branches and loops are made of, for wiring by hand; `td.graph_ops`.

The classic example, x + z if x < y else y * y:

>>> graph = td.Graph()
>>> with graph:
...     x, y, z = (td.placeholder(td.float32, (), name=n) for n in "xyz")
...     less = x < y
...     sum_ = td.graph_ops.switch(x, less).output_true + td.graph_ops.switch(z, less).output_true
...     square = td.square(td.graph_ops.switch(y, less).output_false)
...     result = td.graph_ops.merge([square, sum_]).output
>>> session = td.Session(graph)
>>> session.run(result, {x: 1, y: 2, z: 5}), session.run(result, {x: 3, y: 2, z: 5})
(tensor(6.), tensor(4.))

A loop needs a Merge whose second input comes from below it; `close_loop` makes that connection. How values flow is described in
docs/queues_and_dataflow.md; what may be wired is checked when a session first runs it (flow_check.py).
"""

from __future__ import annotations

from typing import NamedTuple

from tandem import dtypes
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Type, revise
from tandem.session.build import as_tensor, graph_of
from tandem.session.graph import SymbolicTensor
from tandem.session.nodes import Step
from tandem.session.unknown import show_shape


class Primitive(Step):
    """Base of the primitives. Only the tagged executor runs them (flow_program.py)."""

    hand_wired = True


class Switch(Primitive):
    name = "switch"
    saved = ()


class Merge(Primitive):
    name = "merge"
    saved = ("declared",)

    def __init__(self, declared: bool):
        super().__init__()
        self.declared = declared  # the caller gave the shape


class Enter(Primitive):
    name = "enter"
    saved = ("frame_name", "is_constant", "parallel_iterations")

    def __init__(self, frame_name: str, is_constant: bool, parallel_iterations: int):
        super().__init__()
        self.frame_name = frame_name
        self.is_constant = is_constant
        self.parallel_iterations = parallel_iterations


class Exit(Primitive):
    name = "exit"
    saved = ()


class NextIteration(Primitive):
    name = "next_iteration"
    saved = ()


class LoopCond(Primitive):
    name = "loop_cond"
    saved = ()


class SwitchOutput(NamedTuple):
    output_false: SymbolicTensor
    output_true: SymbolicTensor


class MergeOutput(NamedTuple):
    output: SymbolicTensor
    value_index: SymbolicTensor


def _check_predicate(name: str, pred: SymbolicTensor):
    if pred.dtype is not dtypes.bool_ or pred.ndim:
        raise DTypeError(
            name,
            f"the predicate {pred.name!r} is {pred.dtype} {show_shape(pred.type.shape)}; it must be a single bool",
            fix="compare (x < y), and reduce with .all() or .any()",
        )


def switch(data, pred, name: str = "switch") -> SwitchOutput:
    """data on the output that pred names; the other output is dead, and so is what is computed from it."""
    graph = graph_of(data, pred)
    data, pred = as_tensor(graph, data), as_tensor(graph, pred)
    _check_predicate("switch", pred)
    return SwitchOutput(*graph.add_node(Switch(), (data, pred), (data.type, data.type), name).outputs)


def merge(inputs, shape=None, name: str = "merge") -> MergeOutput:
    """The first of the inputs that is live, and which one that was.

    Inputs have one dtype and as many axes; a size in which they differ is unknown afterwards. For a loop variable give the value
    that enters, and later connect what comes round with `close_loop`; `shape` declares sizes that change on the way as None.
    """
    inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if not inputs:
        raise ValueRangeError("merge", "no inputs: a Merge without inputs can never fire")
    graph = graph_of(*inputs)
    inputs = [as_tensor(graph, x) for x in inputs]
    first = inputs[0]
    for other in inputs[1:]:
        if other.dtype is not first.dtype or other.ndim != first.ndim:
            raise DTypeError(
                "merge",
                f"{first.name!r} is {first.dtype} {show_shape(first.type.shape)} and {other.name!r} is {other.dtype} "
                f"{show_shape(other.type.shape)}; inputs of a Merge have one dtype and number of axes",
            )
    name = graph.unique_name(name)
    del graph._names[name]
    sizes = []
    if shape is not None and len(shape) != first.ndim:
        raise ShapeError(
            "merge", f"shape {tuple(shape)} has {len(shape)} axes and {first.name!r} is {show_shape(first.type.shape)}"
        )
    for axis in range(first.ndim):
        given = {x.type.shape[axis] for x in inputs}
        if shape is not None:
            size = shape[axis]
        else:
            size = given.pop() if len(given) == 1 else None
        sizes.append(graph.symbols.new_unknown(name, axis) if size is None else size)
    types = (Type(first.dtype, tuple(sizes)), Type(dtypes.int32, ()))
    return MergeOutput(*graph.add_node(Merge(shape is not None), inputs, types, name.rpartition("/")[2]).outputs)


def enter(data, frame_name: str, is_constant: bool = False, parallel_iterations: int = 10, name: str = "enter"):
    """data in the first iteration of a new frame of that name; in all its iterations, if constant."""
    if parallel_iterations < 1:
        raise ValueRangeError("enter", f"parallel_iterations is {parallel_iterations}; at least one iteration must run")
    graph = graph_of(data)
    data = as_tensor(graph, data)
    op = Enter(str(frame_name), bool(is_constant), int(parallel_iterations))
    return graph.add_node(op, (data,), (data.type,), name).outputs[0]


def exit(data, name: str = "exit"):
    """data, outside of the loop: what it is in the iteration in which it is live."""
    return data.graph.add_node(Exit(), (data,), (data.type,), name).outputs[0]


def next_iteration(data, name: str = "next_iteration"):
    """data in the following iteration; for `close_loop`."""
    return data.graph.add_node(NextIteration(), (data,), (data.type,), name).outputs[0]


def loop_cond(pred, name: str = "loop_cond"):
    """The predicate that decides whether a loop goes on."""
    graph = graph_of(pred)
    pred = as_tensor(graph, pred)
    _check_predicate("loop_cond", pred)
    return graph.add_node(LoopCond(), (pred,), (pred.type,), name).outputs[0]


def close_loop(merged, following) -> None:
    """Connects the end of a loop's body with its beginning: `merged` takes `following` from the second iteration on."""
    merged = merged.output if isinstance(merged, MergeOutput) else merged
    node = merged.node
    if not isinstance(node.op, Merge) or merged.index != 0:
        raise DTypeError("close_loop", f"{merged.name!r} is no result of merge")
    if not isinstance(following.node.op, NextIteration):
        following = next_iteration(following)
    if following.graph is not node.graph:
        raise ValueRangeError("close_loop", f"{following.name!r} belongs to another graph")
    known, given = merged.type, following.type
    if given.dtype is not known.dtype or given.ndim != known.ndim:
        raise DTypeError(
            "close_loop",
            f"{merged.name!r} is {known.dtype} {show_shape(known.shape)} and the next iteration gives {given.dtype} "
            f"{show_shape(given.shape)}; a loop variable keeps its dtype and number of axes",
        )
    for axis, (before, after) in enumerate(zip(known.shape, given.shape, strict=True)):
        if isinstance(before, int) and before != after:
            raise ShapeError(
                "close_loop",
                f"axis {axis} of {merged.name!r} is {before}, and {'unknown' if not isinstance(after, int) else after} in the "
                "next iteration",
                fix="declare sizes that change: merge([x], shape=(None, ...))",
            )
    revise(node, "inputs", (*node.inputs, following))
