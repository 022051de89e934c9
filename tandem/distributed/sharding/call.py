"""Calls of operators on sharded tensors: traced on whole tensors, sharded, run on parts, recorded.

The dispatcher hands them over (Note [Sharded storages] in src/tensor/storage.h). What a call becomes is kept by function, types,
placements and static arguments. The tape has whole tensors: backward of a call is the operator function that differentiates the
graph of whole tensors, called on sharded gradients, which come this way too. So gradients of any order are those of the program
on one rank.
"""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.distributed.sharding.layout import REPLICATE, Placements, grid_of, has_partial, replicated, without_partial
from tandem.distributed.sharding.local import local_function
from tandem.distributed.sharding.moved import reduce_in_place
from tandem.distributed.sharding.parts import check_member, make, state
from tandem.distributed.sharding.placements import Shard
from tandem.distributed.sharding.propagate import NeedsReduced, Sharder, Step
from tandem.errors import AutogradError, ShardingError
from tandem.forks import compiling
from tandem.graph.ir import Builder, Graph, Type, Value, kept_builders
from tandem.ops.define import Movement, add_input, traced_for
from tandem.tracing.compile import (
    Reader,
    Traced,
    Tracing,
    autocast_dtype,
    backward_function,
    differentiate,
    trace_call,
)
from tandem.tracing.describe import ROW_MAJOR, TensorSpec, ValueSpec, spec_of

_NUMBERS = ("float", "integer", "bool", "complex", "seed", "offset")
_MOST = 4096  # calls that are kept


class Output(NamedTuple):
    """A result: its whole type and placements, or which argument it is; view: whether an eager one would share memory."""

    type: Type
    placements: Placements
    argument: int
    view: bool


class Record(NamedTuple):
    """What backward needs. wanted: arguments with gradients; saved: ("input" | "output" | "extra", position)."""

    wanted: list[int]
    saved: list[tuple[str, int]]
    copies: bool  # whether an overwritten argument is among what was saved
    numbers: list[int]
    recorded: list[int]  # outputs that have gradients
    first: object
    twice: object


class Call(NamedTuple):
    """What a call became on this rank."""

    function: object  # of this rank's parts and the numbers
    tensors: list[int]  # arguments, by position
    numbers: list[int]
    outputs: list[Output]
    extras: list[tuple[Type, Placements]]
    is_tuple: bool
    advance: int
    record: Record | None
    steps: list[Step]
    moved: list[tuple[str, int]]


_calls: dict = {}


class ShardedResults(NamedTuple):
    """What the runtime gets of a call (src/dispatch/sharded.cc)."""

    tensors: list
    is_tuple: bool
    advance: int  # random counters that were used


def run_from_dispatch(function, descriptions, tensors) -> ShardedResults:
    return run(function, [spec_of(d) for d in descriptions], tensors, strict=not state.gathers)


def add_gradients(a, b):
    """The sum of two gradients of one tensor: backward has placed them, so where they are divided differently one is gathered."""
    before, state.gathers = state.gathers, True
    try:
        return F.add(a, b)
    finally:
        state.gathers = before


def run(function, spec, tensors, wanted=None, strict: bool = True) -> ShardedResults:
    """wanted: placements of each result; an entry of None per mesh axis leaves them as they come."""
    mesh, placements = _placements(function, tensors)
    if wanted is None and _element_by_element(function, tensors, placements):
        arguments = [item.value if t is None else _local(t) for item, t in zip(spec, tensors, strict=True)]
        function(*arguments)
        return ShardedResults(list(tensors[: function.writes]), function.writes > 1, 0)
    key = _key(function, spec, placements, wanted, mesh, strict)
    call = _calls.get(key)
    if call is None:
        with compiling(), kept_builders():
            try:
                call = _make(function, spec, placements, wanted, mesh, strict)
            except NeedsReduced as need:
                call = need
        if len(_calls) >= _MOST:
            _calls.pop(next(iter(_calls), None), None)  # another rank's thread may be here too
        _calls[key] = call
    if isinstance(call, NeedsReduced):
        reduce_in_place(tensors[call.position], call.placements)
        return run(function, spec, tensors, wanted, strict)
    return ShardedResults(_run(function, call, mesh, spec, tensors), call.is_tuple, call.advance)


# -- what is called


def _element_by_element(function, tensors, placements) -> bool:
    """Whether an update rule of an optimiser can run on parts as it is: in place, all operands lying alike."""
    if not function.role.elementwise or not function.writes or _runtime.grad_enabled():
        return False
    alike = {p for t, p in zip(tensors, placements, strict=True) if t is not None and t.ndim}
    return len(alike) == 1 and not has_partial(*alike)


def _placements(function, tensors) -> tuple:
    mesh, made = None, []
    for t in tensors:
        parts = None if t is None else _runtime.parts_of(t)
        made.append(None if parts is None else parts.placements)
        if parts is None:
            continue
        if mesh is None:
            mesh = parts.mesh
            check_member(mesh, function.__name__)
        elif mesh != parts.mesh:
            raise ShardingError(
                function.__name__, f"its tensors are sharded over {mesh!r} and {parts.mesh!r}",
                fix="bring them to one mesh: distribute_tensor(x.full_tensor(), mesh, placements)",
            )  # fmt: skip
    whole = (REPLICATE,) * mesh.ndim
    for i, t in enumerate(tensors):
        if t is None or made[i] is not None:
            continue
        if t.ndim and not state.replicates:
            others = [p for p in made if p is not None]
            raise ShardingError(
                function.__name__,
                f"argument {i} is a plain tensor {tuple(t.shape)} of this rank, and others are sharded: {others[0]}",
                fix="distribute_tensor(x, mesh, placements) says where its elements are; or, if all ranks have the same, "
                "`with td.distributed.implicit_replication():`",
            )
        made[i] = whole
    return mesh, made


def _key(function, spec, placements, wanted, mesh, strict: bool) -> tuple:
    items = []
    for item, p in zip(spec, placements, strict=True):
        if item.kind == "tensor":
            items.append((item.dtype, item.shape, item.requires_grad, item.device, p))
        elif item.kind in _NUMBERS:
            items.append(item.kind)
        else:
            items.append((item.kind, _frozen(item.value)))
    modes = _runtime.autocast_mode(), _runtime.default_dtype_code(), _runtime.default_device()
    return (
        function,
        tuple(items),
        wanted,
        strict,
        modes,
        mesh.shape,
        mesh.coordinate,
        tuple(g.token for g in mesh.groups),
    )


def _frozen(value):
    if isinstance(value, (list, tuple)):
        return type(value).__name__, tuple(_frozen(v) for v in value)
    if isinstance(value, dict):
        return "dict", tuple((k, _frozen(v)) for k, v in value.items())
    return type(value), value


class _Concrete(Reader):
    """Sizes are numbers: which elements a rank has depends on them."""

    def _int(self, position, value):
        return value

    def _tensor(self, position, description):
        value = self._input(position, Type(dtypes.ALL[description.dtype], tuple(description.shape)), None)
        if description.requires_grad:
            self.traced.wanted.append(value)
        return value


# -- what it becomes


def _make(function, spec, placements, wanted, mesh, strict: bool) -> Call:
    device = max((item.device for item in spec if item.kind == "tensor"), default=0)
    with traced_for(autocast_dtype(device), device > 0):
        traced = trace_call(function, spec, _Concrete)
        split = differentiate(function, traced) if traced.wanted else None
    graph = traced.graph
    extras = []
    if split is not None:
        known = {*graph.inputs, *graph.outputs}
        extras = [v for v in split.saved if v not in known]
    grid = grid_of(mesh)
    sharder = Sharder(grid, strict)
    at = traced.position_of
    given = [(REPLICATE,) * mesh.ndim if v in traced.numbers else placements[at[v]] for v in graph.inputs]
    local = Graph(name=function.__name__)
    whole = Graph(graph.symbols, graph.name)
    whole.inputs, whole.nodes, whole.outputs = graph.inputs, graph.nodes, [*graph.outputs, *extras]
    with traced_for(None, device > 0), Builder(local) as builder, Tracing():
        inputs = [
            add_input(builder, Type(v.dtype, grid.local_shape(v.shape, p), v.type.weak))
            for v, p in zip(graph.inputs, given, strict=True)
        ]
        try:
            made = sharder.graph(whole, inputs, given)
        except NeedsReduced as need:
            raise NeedsReduced(at[graph.inputs[need.position]], need.placements) from None
        targets = _targets(function, whole, made, traced, placements, wanted)
        results = [
            sharder.move(v, value, p, target)
            for v, (value, p), target in zip(whole.outputs, made, targets, strict=True)
        ]
        local.outputs = [F.Copy()(v) if v in local.inputs else v for v in results]
    outputs = [
        Output(v.type, target, _argument_of(v, traced), _is_view(v, traced))
        for v, target in zip(graph.outputs, targets[: len(graph.outputs)], strict=True)
    ]
    advance = int(traced.rng_advance)
    record = None if split is None else _record(function, traced, split, extras, at)
    tensors = [at[v] for v in graph.inputs if v not in traced.numbers]
    numbers = [at[v] for v in graph.inputs if v in traced.numbers]
    return Call(
        local_function(function.__name__, local, [v in traced.numbers for v in graph.inputs]), tensors, numbers, outputs,
        [(v.type, t) for v, t in zip(extras, targets[len(graph.outputs) :], strict=True)],
        traced.is_tuple, advance, record, sharder.steps, sharder.mover.moved,
    )  # fmt: skip


def _targets(function, whole: Graph, made, traced: Traced, placements, wanted) -> list[Placements]:
    """The placements that results are to have."""
    targets = []
    like = next(
        ((v.shape, placements[p]) for v, p in zip(whole.inputs, traced.positions, strict=True)
         if v not in traced.numbers and not replicated(placements[p])),
        None,
    )  # fmt: skip
    for i, (v, (_, found)) in enumerate(zip(whole.outputs, made, strict=True)):
        if i < function.writes:
            targets.append(placements[i])
        elif wanted is not None and i < len(wanted) and wanted[i] is not None:
            targets.append(tuple(f if w is None else w for w, f in zip(wanted[i], found, strict=True)))
        elif like is not None and replicated(found) and tuple(v.shape) == tuple(like[0]) and _is_made(v, traced):
            targets.append(without_partial(like[1]))  # zeros_like and its kind
        else:
            targets.append(found)
    return targets


def _is_made(value: Value, traced: Traced) -> bool:
    """Whether a value depends on no tensor among the arguments."""
    stack, seen = [value], set()
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        if v.node.op.is_input and v not in traced.numbers:
            return False
        stack.extend(v.node.inputs)
    return True


def _argument_of(value: Value, traced: Traced) -> int:
    is_argument = value.node.op.is_input and value not in traced.numbers
    return traced.position_of[value] if is_argument else -1


def _is_view(value: Value, traced: Traced) -> bool:
    while isinstance(value.node.op, Movement) and value.node.inputs:
        value = value.node.inputs[0]
    return value.node.op.is_input and value not in traced.numbers


def _record(function, traced: Traced, split, extras, at) -> Record:
    graph = traced.graph
    outputs = {v: i for i, v in reversed(list(enumerate(graph.outputs)))}
    saved = []
    for v in split.saved:
        if v in at:
            saved.append(("input", at[v]))
        elif v in outputs:
            saved.append(("output", outputs[v]))
        else:
            saved.append(("extra", extras.index(v)))
    first, twice = (backward_function(function, which, split, traced, None) for which in ("first", "twice"))
    recorded = [i for i, yes in enumerate(split.differentiable) if yes]
    return Record([at[v] for v in traced.wanted], saved, bool(split.copies), [at[v] for v in split.numbers], recorded,
                  first, twice)  # fmt: skip


# -- running it


def _run(function, call: Call, mesh, spec, tensors) -> list:
    for report in state.reports:
        report.add(function.__name__, call)
    before = _runtime.set_grad_enabled(False)
    try:
        made = call.function([_local(tensors[i]) for i in call.tensors], [spec[i].value for i in call.numbers])
        made = list(made) if isinstance(made, tuple) else [made]
        results = _results(function, call, mesh, tensors, made)
        extras = [
            make(mesh, placements, value, type.shape)
            for value, (type, placements) in zip(made[len(call.outputs) :], call.extras, strict=True)
        ]
    finally:
        _runtime.set_grad_enabled(before)
    if call.record is not None:
        _remember(function, call, mesh, spec, tensors, results, extras)
    elif before:
        for t in results[: function.writes]:
            if not t.is_leaf:
                _runtime.drop_history(t)
    return results


def _local(tensor):
    parts = _runtime.parts_of(tensor)
    return tensor.detach() if parts is None else parts.local


def _results(function, call: Call, mesh, tensors, made) -> list:
    results = []
    for i, (output, value) in enumerate(zip(call.outputs, made[: len(call.outputs)], strict=True)):
        if i < function.writes:
            F.copy_(_local(tensors[i]), value)
            results.append(tensors[i])
        elif output.argument >= 0:
            results.append(tensors[output.argument])
        else:
            results.append(make(mesh, output.placements, value, output.type.shape, writable=not output.view))
    return results


def _remember(function, call: Call, mesh, spec, tensors, results, extras):
    record = call.record
    kept = []
    for kind, position in record.saved:
        t = {"input": tensors, "output": results, "extra": extras}[kind][position]
        kept.append((kind, position, t if kind == "input" else t.detach(), t._version))
    numbers = [spec[i].value for i in record.numbers]
    arguments = list(tensors)
    # A result that is an argument, unwritten, has that one's history: it gets its gradient by itself.
    recorded = [i for i in record.recorded if call.outputs[i].argument < 0 or i < function.writes]
    if not recorded:
        return

    def backward(create_graph, *grads):
        for _, _, t, version in kept:
            if t._version != version:
                raise AutogradError(
                    f"backward of {function.__name__}", "it needs a tensor that was changed in place after it was saved",
                    fix="change a clone() instead, or use the out-of-place form of the operator",
                )  # fmt: skip
        full = [None] * len(call.outputs)
        for i, g in zip(recorded, grads, strict=True):
            full[i] = g
        saved = _saved_again(function, call, kept, spec, arguments) if create_graph else [t for _, _, t, _ in kept]
        inputs = [arguments[i] for i in record.wanted]
        return tuple(_backward(record.twice if create_graph else record.first, mesh, full, saved, numbers, inputs))

    _runtime.record_python(
        backward, function.__name__, [tensors[i] for i in record.wanted], [results[i] for i in recorded]
    )


def _saved_again(function, call: Call, kept, spec, arguments) -> list:
    """What was saved, with its history: gradients of gradients go on from there."""
    if call.record.copies or (call.advance and any(kind == "output" for kind, *_ in kept)):
        raise AutogradError(
            f"backward of {function.__name__}", "it cannot be differentiated again on sharded tensors",
            fix="use the out-of-place form of the operator",
        )  # fmt: skip
    results = None
    saved = []
    for kind, position, t, _ in kept:
        if kind == "output":
            results = run(function, spec, arguments)[0] if results is None else results
            t = results[position]
        saved.append(t)
    return saved


def _backward(function, mesh, grads, saved, numbers, inputs) -> list:
    """Calls a backward function (BACKWARD_PARAMETERS in tracing/compile.py). Gradients of what is divided are divided alike; those
    of plain tensors are whole."""
    spec, tensors = [], []

    def add(t):
        if t is None:
            spec.append(ValueSpec("none"))
        else:
            requires = t.requires_grad and _runtime.grad_enabled()
            spec.append(_tensor_spec(t, requires))
        tensors.append(t)

    def count(n):
        spec.append(ValueSpec("count", n))
        tensors.append(None)

    count(len(grads))
    for g in grads:
        add(g)
    count(len(saved))
    for t in saved:
        add(t)
    count(0)
    count(len(numbers))
    for n in numbers:
        spec.append(ValueSpec(_kind(n), n))
        tensors.append(None)
    wanted = tuple(_gradient_placements(t, mesh) for t in inputs)
    with _replicating():
        results = run(function, spec, tensors, wanted, strict=False).tensors
    made = []
    for t, g in zip(inputs, results, strict=True):
        plain = _runtime.parts_of(t) is None
        made.append(plain_gradient(g) if plain else g)
    return made


class _replicating:
    """Plain tensors among what backward gets were taken as replicated by forward."""

    def __enter__(self):
        self._before, state.replicates = state.replicates, True

    def __exit__(self, *exc):
        state.replicates = self._before


def _gradient_placements(tensor, mesh):
    parts = _runtime.parts_of(tensor)
    if parts is None:
        return (REPLICATE,) * mesh.ndim
    return tuple(p if isinstance(p, Shard) else None for p in parts.placements)


def plain_gradient(g):
    """The gradient of a plain tensor, which all ranks have: of a replicated one."""
    return _runtime.parts_of(g).local


def _tensor_spec(t, requires_grad: bool):
    device = 0 if t.device == "cpu" else t.device.index + 1
    return TensorSpec("tensor", t.dtype.code, tuple(t.shape), tuple(t.stride()), ROW_MAJOR, None, requires_grad, device)


def _kind(n) -> str:
    return "bool" if isinstance(n, bool) else "integer" if isinstance(n, int) else (
        "float" if isinstance(n, float) else "complex")  # fmt: skip
