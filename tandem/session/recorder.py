"""Recorder: calls of operators become nodes of a deferred graph, whose types are inferred while it is built."""

from __future__ import annotations

from collections.abc import Callable

from tandem import _runtime, dtypes
from tandem.errors import TandemError, UnsupportedError, ValueRangeError
from tandem.graph import ir
from tandem.graph.building import _stack, outside_graphs
from tandem.graph.ir import Builder, Type, Value
from tandem.graph.substitution import symbol_indices
from tandem.graph.symbolic import Sym
from tandem.ops.define import add_input
from tandem.session.nodes import Call, Number, Operand, Primitive, Random, as_results, map_leaves
from tandem.session.symbolic_tensor import SymbolicTensor
from tandem.session.unknown import name_unknown
from tandem.tensors.constructors import tensor
from tandem.tracing.compile import RandomState


class Recorder(Builder):
    """Turns calls of operators into nodes of a deferred graph."""

    records_calls = True
    share: Callable  # (graph, tensor) -> the variable that is this tensor; build.py, where variables are, provides it

    def add(self, op, inputs):
        inputs = tuple(self._operand(v) for v in inputs)
        types = infer(self.graph, lambda trace, values: _results(op(*values)), inputs)
        return self.graph.add_node(Primitive(op), inputs, types)

    def call(self, function, args, kwargs):
        operands: list[SymbolicTensor] = []

        def take(value):
            operands.append(value)
            return Operand(len(operands) - 1)

        def tensor(x):
            if x is None or isinstance(x, Sym):
                return x
            return Number(x) if isinstance(x, (bool, int, float)) else take(self._operand(x))

        def record(kind, x):
            if kind == "generator":
                if x is None:
                    return Random(None)
                operands.append(self.graph.stream(x))
                return Random(len(operands) - 1)
            if kind in ("tensor", "optional_tensor", "tensors"):
                if kind != "tensors" and isinstance(x, (list, tuple)):
                    return take(self._operand(x))
                return map_leaves(tensor, x)
            return map_leaves(lambda y: take(self._operand(y)) if isinstance(y, (Value, _runtime.Tensor)) else y, x)

        for x in args[: function.writes]:
            if isinstance(x, _runtime.Tensor) and not self.graph.is_body:
                self._shared(x)
        parameters = function.parameters
        kinds = {p.name: p.kind for p in parameters}
        recorded = [record(p.kind, a) for p, a in zip(parameters, args, strict=False)]
        recorded_keywords = {k: record(kinds[k], a) for k, a in kwargs.items()}
        written = [operands[i] for i in range(function.writes)]
        for v in written:
            if not v.node.op.is_variable:
                raise UnsupportedError(
                    function.__name__, f"{v.name!r} is a value of a graph, which nothing can change in place",
                    fix=f"use the form that gives a new value, {function.__name__.rstrip('_')}, or a td.Variable",
                )  # fmt: skip
        op = Call(function, recorded, recorded_keywords)
        op.written = tuple(written)
        try:
            types = infer(self.graph, lambda trace, values: op.run(trace, None, values), operands)
        except TandemError as error:
            name_unknown(error)
            raise
        present = [t for t in types if t is not None]
        op.present = tuple(t is not None for t in types)
        if written:
            present = [v.type for v in written]
        measured = [v for v in self._measured(recorded, recorded_keywords) if v not in operands]
        node = self.graph.add_node(op, (*operands, *measured), present)
        if written:
            return node.outputs[0]
        outputs = iter(node.outputs)
        made = tuple(next(outputs) if has else None for has in op.present)
        return made if op.is_tuple else made[0]

    def _measured(self, *arguments) -> list[SymbolicTensor]:
        """Tensors whose sizes are among the arguments: a run that makes the call must know them."""
        found = set()
        map_leaves(lambda x: symbol_indices(x, found), arguments)
        origins = self.graph.symbols.origins
        return list(dict.fromkeys(origins[i][1] for i in sorted(found) if origins[i][0] == "axis"))

    def _operand(self, x) -> SymbolicTensor:
        if isinstance(x, SymbolicTensor):
            if x.node.graph is not self.graph:
                raise ValueRangeError(None, f"{x.name!r} belongs to another graph than the one being built")
            return x
        if isinstance(x, Value):
            raise UnsupportedError(None, f"{x!r} belongs to a function that is being traced, not to this graph")
        if isinstance(x, _runtime.Tensor):
            is_state = x.requires_grad and x.is_leaf and not self.graph.is_body and id(x) not in self.graph._held
            return self._shared(x) if is_state else self.graph.hold(x)
        with outside_graphs():
            return self.graph.hold(tensor(x))

    def _shared(self, x) -> SymbolicTensor:
        return self.share(self.graph, x)


class _Inference:
    """Stands in for a run while types are inferred."""

    def __init__(self, builder, symbols):
        self.builder = builder
        self.rng_advance = 0
        self.sizes = _Same(symbols)

    def random_state(self, seed):
        number = Type(dtypes.int64, ())
        return RandomState(add_input(self.builder, number), add_input(self.builder, number), self)

    def region_state(self, seeded):
        return self.random_state(None)


class _Same(dict):
    """Maps each symbol to itself."""

    def __init__(self, symbols):
        self.symbols = symbols

    def __missing__(self, index):
        return self.symbols._make({(("sym", index),): 1})


def infer(graph, run, operands) -> list[Type | None]:
    """Types of what run(trace, values) gives for values of the operands' types."""
    symbols = graph.symbols
    before = symbols.mark()
    builder = Builder(ir.Graph(symbols))
    _stack().append(builder)
    _runtime.enter_trace()
    symbols.inferring = True
    try:
        values = [add_input(builder, v.type) for v in operands]
        results = as_results(run(_Inference(builder, symbols), values))
        types = [None if v is None else Type(v.dtype, tuple(symbols.resolve(d) for d in v.shape)) for v in results]
    finally:
        _runtime.exit_trace()
        _stack().pop()
        symbols.inferring = False
        symbols.back_to(before)
    return types


def _results(result) -> list:
    return list(result) if isinstance(result, tuple) else [result]
