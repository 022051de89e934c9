"""The slow path of an eager call: trace the operator's Python body, differentiate, compile a plan.

Called by the dispatcher (src/dispatch) once per new signature. `spec` describes the flattened arguments; the plan that comes
back serves every later call with this signature whose sizes satisfy its guards.
"""

from __future__ import annotations

import operator

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.autodiff.lazy_sums import lazy_backward
from tandem.autodiff.partition import partition
from tandem.autodiff.reverse import backpropagate
from tandem.codegen import Layout
from tandem.devices import DEVICES, code_of
from tandem.errors import DTypeError, InternalError, ShapeError
from tandem.graph.ir import Builder, Graph, Type, Value, replay, revise
from tandem.graph.substitution import substitute
from tandem.graph.symbolic import Dim, Sym
from tandem.ops.arithmetic import StopGradient
from tandem.ops.create import Incoming
from tandem.ops.define import (
    Backward,
    Input,
    Movement,
    ParameterSpec,
    Role,
    add_input,
    make_function,
    traced_for,
    tracing,
)
from tandem.ops.prepare import result_dtype
from tandem.ops.region import Region
from tandem.ops.transfer import Transfer
from tandem.placement.where import Where, goes_along, on_different_devices, spans_devices
from tandem.program.driver import compile as compile_program
from tandem.program.driver import make
from tandem.program.report import budget_of, reports
from tandem.program.request import Options, Request, Source
from tandem.tracing.describe import TensorSpec, ValueSpec
from tandem.tracing.digest import digest_of
from tandem.tracing.inputs import input_type
from tandem.tracing.operator_plan import (
    CapturedPlan,
    OperatorWriter,
    attach_backward,
    named_arguments,
    temporaries_of,
)

NUMBER_DTYPES = {"float": dtypes.float64, "bool": dtypes.bool_, "complex": dtypes.complex128}  # others: int64

Spec = list[TensorSpec | ValueSpec]


class Traced:
    """An operator call as a graph, with where its inputs come from."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.layouts: list[Layout | None] = []  # per graph input
        self.positions: list[int] = []  # graph input -> position among the flattened arguments
        self.wanted: list[Value] = []  # inputs that require gradients
        self.numbers: set[Value] = set()  # inputs that are Python numbers
        self.on_host: set[Value] = set()  # of a call on a device: single elements in host memory
        self.device = 0  # where the call runs: 0 the CPU, k cuda:(k - 1)
        self.where: Where | None = None  # of a call over several devices: where each value is
        self.rng_advance = 0
        self.is_tuple = False

    @property
    def position_of(self) -> dict[Value, int]:
        """Graph input -> position among the flattened arguments."""
        return dict(zip(self.graph.inputs, self.positions, strict=True))


def _device_of(function, spec: Spec) -> int:
    """Where a call runs: where its tensors are. A single element on the CPU may go with tensors elsewhere. A function of many
    operators may have tensors on several devices, which is for its operators to say."""
    tensors = [item for item in spec if item.kind == "tensor"]
    if not tensors:
        return _runtime.default_device()
    if function.role.moves:
        return tensors[0].device
    written = tensors[: function.writes]  # where results go: memory of another device cannot take them
    devices = {t.device for t in tensors if t.device or t.shape or t.requires_grad or t in written} or {0}
    if len(devices) > 1 or (devices == {0} and any(t.device for t in tensors)):
        if not function.role.whole:
            raise on_different_devices(function.__name__, [DEVICES[t.device] for t in tensors])
        return max(devices)
    return devices.pop()


def _input_devices(spec: Spec, traced: Traced) -> list[str | None]:
    """The device of every input of the graph, None for numbers."""
    tensors = (spec[position] for position in traced.positions)
    return [str(DEVICES[t.device]) if t.kind == "tensor" else None for t in tensors]


def _is_over_devices(graph: Graph, devices: list[str | None], device: int) -> bool:
    main = str(DEVICES[device])
    elsewhere = (
        d for v, d in zip(graph.inputs, devices, strict=True) if d not in (None, main) and not goes_along(v, d, main)
    )
    return any(elsewhere) or spans_devices(graph, main)


def compile_plan(function, spec: Spec):
    device = _device_of(function, spec)
    with traced_for(autocast_dtype(device), device > 0):
        return _compile_plan(function, spec, device)


def autocast_dtype(device: int):
    """The type that products are lowered to in a call on this device, or None."""
    mode = _runtime.autocast_mode()
    return dtypes.ALL[(mode - 1) % 16] if mode and (mode > 16) == (device > 0) else None


def _compile_plan(function, spec: Spec, device: int):
    traced = trace_call(function, spec)
    traced.device = device
    split = differentiate(function, traced) if traced.wanted else None
    resolve_sizes(traced.graph)
    devices = _input_devices(spec, traced)
    if _is_over_devices(traced.graph, devices, device):
        traced.where = Where(traced.graph, devices)
        traced.device = _results_device(traced)
    request = _request(function, spec, traced, split)
    program = compile_program(request)
    if request.options.whole:
        graph = program.graph or (lambda: make(request, None, {}, {})[0].graph)
        shapes = [item.shape for item in spec if item.kind == "tensor"]
        for report in reports(function.role.report):
            report.add_graph(graph, traced.graph, shapes, program.facts, program.seconds)
    digest = digest_of(function, spec)
    if split is not None:
        if function.role.lazy_sums and traced.where is None:
            split.lazy, split.summands = lazy_backward(split.first)
        graphs = ["first", "twice"] + ["lazy"] * (split.lazy is not None)
        functions = {graph: backward_function(function, graph, split, traced, digest) for graph in graphs}
        attach_backward(program.builder, program.written, traced, split, functions)
    temporaries = temporaries_of(program.written, split)
    arguments = named_arguments(function.parameters, spec)
    program.builder.keep(
        CapturedPlan(
            request.name,
            digest,
            traced.graph,
            traced.positions,
            temporaries,
            traced.device,
            arguments,
            traced.where is not None,
            function.role.whole,
        )
    )
    return program.builder


def _request(function, spec: Spec, traced: Traced, split) -> Request:
    role = function.role
    saved = split.saved if split is not None else []

    def build() -> Source:
        on_host = traced.numbers | traced.on_host
        where = traced.where and [traced.where[v] for v in traced.graph.inputs]
        details = _details(traced, split)
        return Source(traced.graph, traced.layouts, traced.positions, on_host, saved, function.writes, where, details)

    def write(source: Source, schedule, builder) -> tuple:
        return OperatorWriter(request, source, schedule, builder, traced, split).write()

    options = Options(
        whole=role.whole and not _runtime.capturing(),  # where the program around has passes of its own
        exact_views=True,
        own_results=role.own_results,
        memory_budget=budget_of(role.report),
        captured=_runtime.capturing(),
    )
    request = Request(function.__name__, build, traced.device, write, spec, options)
    if traced.where is not None:
        request.devices = tuple(sorted({traced.device, *(code_of(d) for d in traced.where.values() if d)}))
    return request


def _details(traced: Traced, split) -> tuple:
    """What a plan has besides its graph: calls with one graph may differ in which results have gradients, and so on."""
    place = {v: i for i, v in enumerate(traced.graph.inputs)}
    found = traced.is_tuple, repr(traced.rng_advance), sorted(place[v] for v in traced.numbers)
    if split is None:
        return found
    return *found, split.differentiable, split.sizes, [place.get(split.copies.get(v), -1) for v in split.saved]


def _results_device(traced: Traced) -> int:
    """Where results are that could be anywhere: with the first that could not."""
    found = next((traced.where[v] for v in traced.graph.outputs if traced.where[v] is not None), None)
    return traced.device if found is None else code_of(found)


def trace_call(function, spec: Spec, reader=None) -> Traced:
    """The call as a graph. reader: what makes inputs of the arguments' descriptions; symbolic ones unless given."""
    graph = Graph(name=function.__name__)
    builder = Builder(graph)
    traced = Traced(graph)
    with builder, Tracing():
        arguments = _rebuild_arguments(function.parameters, (reader or Reader)(spec, builder, traced))
        if function.role.moves:
            arguments = _brought(arguments, spec, traced)
        if function.role.whole:
            devices = zip(graph.inputs, _input_devices(spec, traced), strict=True)
            tracing.devices = {v: device for v, device in devices if device is not None}
        positional = [a for p, a in zip(function.parameters, arguments, strict=True) if not p.keyword_only]
        keywords = {p.name: a for p, a in zip(function.parameters, arguments, strict=True) if p.keyword_only}
        result = function.__wrapped__.__wrapped__(*positional, **keywords)
        if function.writes:
            graph.outputs = _store_all(function, graph, result)
            traced.is_tuple = len(graph.outputs) > function.writes
            return traced
    traced.is_tuple = isinstance(result, (tuple, list))
    outputs = list(result) if traced.is_tuple else [result]
    with builder, Tracing():
        graph.outputs = [_own_memory(v, traced.numbers) for v in outputs if v is not None]
    return traced


def _brought(arguments: list, spec: Spec, traced: Traced) -> list:
    """Arguments of an operator that brings its operands to where the first one is: as x.to(device) brings them."""
    device_of = {v: spec[p].device for v, p in traced.position_of.items() if spec[p].kind == "tensor"}
    here = device_of[traced.graph.inputs[0]]

    def bring(a):
        there = device_of.get(a, here) if isinstance(a, Value) else here
        return a if there == here or not (there or a.ndim) else Transfer(str(DEVICES[here]), str(DEVICES[there]))(a)

    return [bring(a) for a in arguments]


def _own_memory(value: Value, numbers: set[Value]) -> Value:
    """value as something that can be an output: a Python number has no memory that a result could be a view of."""
    root = value
    while isinstance(root.op, Movement) and root.node.inputs:
        root = root.node.inputs[0]
    if root not in numbers:
        return value
    dtype = result_dtype(root)
    return F.Copy()(value) if value.dtype is dtype else F.Cast(dtype)(value)


class Tracing:
    def __enter__(self):
        _runtime.enter_trace()

    def __exit__(self, *exc):
        _runtime.exit_trace()


class Reader:
    """Turns the flattened argument descriptions into symbolic values, one after the other."""

    def __init__(self, spec, builder: Builder, traced: Traced):
        self.spec = spec
        self.builder = builder
        self.traced = traced
        self.position = 0

    def next(self):
        position = self.position
        item = self.spec[position]
        self.position += 1
        kind = item.kind
        if kind == "tensor":
            return self._tensor(position, item)
        if kind in ("float", "integer", "bool", "complex", "seed", "offset"):
            dtype = NUMBER_DTYPES.get(kind, dtypes.int64)
            value = self._input(position, Type(dtype, (), weak=kind not in ("seed", "offset")), None)
            self.traced.numbers.add(value)
            return value
        if kind == "int":
            return self._int(position, item.value)
        if kind == "none":
            return None
        return item.value  # static, count

    def _input(self, position, type, layout):
        value = add_input(self.builder, type)
        self.traced.positions.append(position)
        self.traced.layouts.append(layout)
        return value

    def _int(self, position, value):
        symbols = self.builder.graph.symbols
        symbol = symbols.new(value, ("int", position), signed=value < 0)
        symbols.require(">=" if value >= 0 else "<", symbol)
        return symbol

    def _tensor(self, position, description):
        symbols = self.builder.graph.symbols

        def size(n, kind, axis):
            return symbols.new(n, (kind, position, axis), not_one=kind == "size", signed=kind == "stride")

        value = self._input(position, *input_type(description, size))
        if description.requires_grad:
            self.traced.wanted.append(value)
        if description.device == 0:  # means something only in calls on a device
            self.traced.on_host.add(value)
        return value


def _rebuild_arguments(parameters: list[ParameterSpec], reader: Reader) -> list:
    arguments = []
    for parameter in parameters:
        if parameter.kind == "tensors":
            arguments.append([reader.next() for _ in range(reader.next())])
        elif parameter.kind == "ints":
            if reader.spec[reader.position].kind == "count":
                arguments.append(tuple(reader.next() for _ in range(reader.next())))
            else:
                arguments.append(reader.next())
        elif parameter.kind == "generator":
            arguments.append(RandomState(reader.next(), reader.next(), reader.traced))
        else:
            arguments.append(reader.next())
    return arguments


class RandomState:
    """The generator inside a traced operator: seed and offset as symbolic values."""

    def __init__(self, seed: Value, offset: Value, traced: Traced):
        self.seed = seed
        self._offset = offset
        self._traced = traced

    def take(self, count) -> Value:
        """The offset at which `count` fresh blocks begin."""
        used = self._traced.rng_advance
        self._traced.rng_advance = used + count
        return (
            self._offset if isinstance(used, int) and used == 0 else F.Add()(self._offset, F.Size(used, dtypes.int64)())
        )


def _store_all(function, graph: Graph, result) -> list[Value]:
    """An in-place operator: its results go into the memory of its first arguments, one after the other."""
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    if len(results) < function.writes:
        raise InternalError(
            function.__name__, f"the body gave {len(results)} results for {function.writes} arguments that it writes"
        )
    return [_store(function, graph, k, results[k]) for k in range(function.writes)] + results[function.writes :]


def _store(function, graph: Graph, position: int, result: Value) -> Value:
    target = graph.inputs[position]
    if result.ndim != target.ndim or any(a != b for a, b in zip(result.shape, target.shape, strict=True)):
        raise ShapeError(
            function.__name__,
            f"the result is {result.shape} but the tensor written to is {target.shape}; an in-place operator cannot change it",
            fix=f"use the out-of-place form {function.__name__.rstrip('_')}" if function.writes == 1 else None,
        )
    order = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}
    if order[result.dtype.kind] > order[target.dtype.kind]:
        raise DTypeError(
            function.__name__,
            f"the result is {result.dtype} but the tensor written to holds {target.dtype}",
            fix=f"convert first: x = x.to({result.dtype})",
        )
    if result.dtype is not target.dtype:
        result = F.Cast(target.dtype)(result)
    if result is target:
        result = F.Copy()(result)
    graph.mutations.append((position, result))
    return result


# -- gradients


def differentiate(function, traced: Traced):
    """Builds backward for the traced call, or None if no output depends on an input that requires a gradient."""
    graph = traced.graph
    forward_nodes = list(graph.nodes)
    builder = Builder(graph)
    with builder, Tracing():
        # Stand-ins for the incoming gradients: inputs of the joint graph that never become inputs of the forward one.
        grads = [
            builder.add(F.Incoming(i, v.type), ()).outputs[0] if v.dtype.is_inexact else None
            for i, v in enumerate(graph.outputs)
        ]
        results = backpropagate(forward_nodes, graph.outputs, grads, traced.wanted)
        flat = all(r is None for r in results) and function.role.backward is not None
        if flat:
            # The gradient of relu and its kin: it depends on x, but piece by piece it does not change. Differentiating it
            # is no mistake of the user's, and gives zeros.
            results = [F.full(v.shape, 0, dtype=v.dtype) for v in traced.wanted]
    if all(r is None for r in results):
        del graph.nodes[len(forward_nodes) :]
        return None
    traced.wanted = [v for v, r in zip(traced.wanted, results, strict=True) if r is not None]
    results = [r for r in results if r is not None]
    resolve_sizes(graph)
    incoming = [g for g in grads if g is not None]
    mutated = {graph.inputs[p] for p, _ in graph.mutations}
    recompute = function.role.recompute
    kept = frozenset() if recompute else set(forward_nodes)
    split = partition(graph, incoming, results, traced.numbers, kept)
    split.recompute = recompute
    del graph.nodes[len(forward_nodes) :]
    split.copies = {}
    if mutated:  # saving what the operator overwrites: keep a copy instead
        with Builder(graph) as builder:
            for i, v in enumerate(split.saved):
                if v in mutated:
                    copy = builder.add(F.Copy(), (v,)).outputs[0]
                    split.copies[copy] = v
                    split.saved[i] = copy
    split.differentiable = (
        [v.dtype.is_inexact for v in graph.outputs] if flat else _reached(forward_nodes, traced.wanted, graph.outputs)
    )
    split.grad_positions = [i for i, g in enumerate(grads) if g is not None]
    return split


def _reached(nodes, wanted, outputs) -> list[bool]:
    found = set(wanted)
    for node in nodes:
        if not isinstance(node.op, StopGradient) and any(v in found for v in node.inputs):
            found.update(v for v in node.outputs if v.dtype.is_inexact)
    return [v in found for v in outputs]


BACKWARD_PARAMETERS = [
    ParameterSpec("grads", "tensors", True, None, False),
    ParameterSpec("saved", "tensors", True, None, False),
    ParameterSpec("ints", "ints", True, None, False),
    ParameterSpec("numbers", "tensors", True, None, False),
]


def backward_function(function, which: str, split, traced: Traced, digest: str | None):
    """An operator function that runs one of the backward graphs, `first`, `twice` or `lazy`. Being an operator, it can be
    differentiated in turn."""
    name = function.__name__ + "_backward"
    graph = getattr(split, which)
    output_types = [v.type for v in traced.graph.outputs]

    def backward(grads, saved, ints, numbers):
        sizes = dict(zip(split.sizes, ints, strict=True))
        incoming = []
        for i in split.grad_positions:
            shape = _sized(output_types[i].shape, sizes)
            g = grads[i]
            if g is None:
                g = F.full(shape, 0, dtype=output_types[i].dtype)
            elif g.dtype is not output_types[i].dtype:
                g = F.Cast(output_types[i].dtype)(g)
            incoming.append(g)
        if split.recompute:  # in a whole program this must not be merged with what forward computed
            saved = [F.Again()(v) for v in saved]
        inputs = [*incoming, *saved, *numbers]
        for value, expected in zip(inputs, graph.inputs, strict=True):
            # Records that these sizes are equal, so that the code generator sees one size, not two.
            for actual, dim in zip(value.shape, _sized(expected.shape, sizes), strict=True):
                if actual != dim:
                    raise ShapeError(
                        name, f"a gradient has shape {value.shape}; expected is {_sized(expected.shape, sizes)}"
                    )
        results = replay(graph, inputs, sizes)
        return tuple(results)

    role = Role(whole=function.role.whole, backward=Backward(graph, backward, len(output_types), split.grad_positions))
    return make_function(name, backward, BACKWARD_PARAMETERS, role=role, digest=digest and f"{digest} {which}")


def _sized(shape, sizes):
    return substitute(tuple(shape), sizes)


def resolve_sizes(graph: Graph):
    """Puts in what equality guards taught: afterwards equal sizes are written alike."""
    symbols = graph.symbols
    if not symbols.has_replacements():
        return

    known: dict[Sym, Dim] = {}

    def change(d):
        """The very object, where nothing changes."""
        if isinstance(d, tuple):
            changed = tuple([change(x) for x in d])
            return d if all(map(operator.is_, d, changed)) else changed
        if not isinstance(d, Sym):
            return d
        found = known.get(d)
        if found is None:
            found = known[d] = symbols.resolve(d)
        return found

    for node in graph.nodes:
        op = node.op
        if isinstance(op, Region):
            revise(node, "op", op._with_sizes(change))
            for part in node.op.graphs():
                resolve_sizes(part)
        elif not isinstance(op, (Input, Incoming)) and any([change(f) is not f for f in op._key[1:]]):  # noqa: C419
            revise(node, "op", op.substitute(change))
        for value in node.outputs:
            shape = change(value.shape)
            if shape is not value.shape:
                revise(value, "type", Type(value.dtype, shape, value.type.weak))
