"""Functions and modules written as ONNX files."""

from __future__ import annotations

import numpy as np

from tandem import dtypes, files
from tandem.errors import UnsupportedError
from tandem.export.composition import composition, made_of
from tandem.export.fold import fold_weights
from tandem.export.in_parts import real_weights
from tandem.export.trace import Exported, to_numpy, trace, unused, with_names
from tandem.graph.ir import Graph, Node, Type, Value
from tandem.graph.symbolic import FreeSizeError, Sym, known_nonnegative
from tandem.onnx.guards import guarded
from tandem.onnx.read import onnx_package
from tandem.onnx.types import code_of, dtype_of
from tandem.onnx.writers import WRITERS
from tandem.onnx.writers.expressions import expression
from tandem.onnx.writers.kernels import result_types, typed_operands, wider
from tandem.ops.define import Elementwise
from tandem.ops.movement import Expand
from tandem.passes.eliminate_dead import eliminate_dead

OPSET, IR_VERSION = 20, 10


def save(fn, args, path=None, *, dynamic=True, input_names=None, output_names=None, fold=True, opset: int = OPSET):
    """Writes a function or module as an ONNX file; gives the onnx.ModelProto.

    fn: a module or a function of tensors. It runs once, on tensors without values, with gradients off: call `model.eval()` before.
    args: the tensors of one call, or one tensor.
    dynamic: True: the first axis of every argument may have any size. False: no axis may. {name: axes}: these.
    fold: what depends on weights alone is computed now, and batch norm goes into convolutions.
    path: where to; None: nowhere.

    >>> model = td.nn.Linear(3, 2)
    >>> proto = td.onnx.save(model, td.ones(4, 3))
    >>> [node.op_type for node in proto.graph.node]
    ['Gemm']
    """
    onnx = onnx_package()
    args = args if isinstance(args, (tuple, list)) else (args,)
    exported = trace(fn, tuple(args), dynamic, input_names)
    _refuse_complex(exported)
    exported = with_names(real_weights(exported), output_names)
    if fold:
        exported = fold_weights(exported)
    graph = _graph_proto(onnx, exported, exported.outputs, opset)
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=IR_VERSION, producer_name="tandem"
    )
    onnx.checker.check_model(model)
    if path is not None:
        files.write(path, model.SerializeToString())
    return model


def _refuse_complex(exported: Exported):
    """onnxruntime has no kernels of complex numbers."""
    graph = exported.graph
    ends = [*zip(exported.arguments, graph.inputs, strict=False), *zip(exported.outputs, graph.outputs, strict=True)]
    for name, v in ends:
        if v.dtype.is_complex:
            raise UnsupportedError(
                "onnx", f"{name!r} is {v.dtype}; a file takes and gives real numbers",
                fix="have the function take and give pairs, td.view_as_real(x); inside it may compute with complex numbers",
            )  # fmt: skip


def _graph_proto(onnx, exported: Exported, outputs: list[str], opset: int):
    graph = exported.graph
    count = len(exported.arguments)
    writer = Writer(onnx, graph, opset)
    names = [*exported.arguments, *exported.weights]
    writer.reserved.update(names, outputs)
    for value, name in zip(graph.inputs, names, strict=True):
        writer.names[value], writer.types[name] = name, value.dtype
    writer.sources = {
        index: (names[origin[1]], origin[2])
        for index, origin in enumerate(graph.symbols.origins)
        if origin[0] == "size" and origin[1] < count
    }
    for name, t in exported.weights.items():
        writer.initializers[name] = onnx.numpy_helper.from_array(to_numpy(t), name)
    results = writer.write(graph)
    if results:
        results[0] = guarded(writer, graph.symbols, results[0])
    nodes = writer.nodes
    for name, result in zip(outputs, results, strict=True):
        nodes.append(onnx.helper.make_node("Identity", [result], [name]))
    infos = [writer.info(name, v.type) for name, v in zip(names[:count], graph.inputs, strict=False)]
    made = [writer.info(name, v.type) for name, v in zip(outputs, graph.outputs, strict=True)]
    nodes = _needed(nodes, outputs)
    used = {name for node in nodes for name in _names_read(node)}
    weights = [t for name, t in writer.initializers.items() if name in used]
    return onnx.helper.make_graph(_tidy(nodes, outputs), exported.graph.name or "tandem", infos, made, weights)


def _needed(nodes: list, outputs: list[str]) -> list:
    """Nodes without those that nothing reads."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if any(name in wanted for name in node.output):
            wanted.update(_names_read(node))
            kept.append(node)
    return kept[::-1]


def _tidy(nodes: list, outputs: list[str]) -> list:
    """Nodes without the Identity that names an output, where the node before it can have the name."""
    made = {name: node for node in nodes for name in node.output}
    uses: dict[str, int] = {}
    for node in nodes:
        for name in _names_read(node):
            uses[name] = uses.get(name, 0) + 1
    kept = []
    for node in nodes:
        (source, *_), target = (list(node.input) or [None]), node.output[0]
        before = made.get(source)
        if node.op_type == "Identity" and target in outputs and before is not None and uses[source] == 1:
            before.output[list(before.output).index(source)] = target
        else:
            kept.append(node)
    return kept


def _names_read(node):
    """Names that a node and the graphs in it read."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                yield from _names_read(inner)
            yield from (o.name for o in attribute.g.output)


def _broadcasts(values: list[Value], shape) -> bool:
    """Whether values of one rank broadcast to the shape; asks sizes for nothing, which would be a guard."""
    if any(v.ndim != len(shape) and v.ndim for v in values):
        return False
    full = [v.shape for v in values if v.ndim]
    return all(any(str(s[a]) == str(d) for s in full) for a, d in enumerate(shape))


class Writer:
    """Nodes of one ONNX graph, and names of what they make. Writers of the graphs inside loops share constants with it."""

    def __init__(self, onnx, graph: Graph, opset: int, outer: Writer | None = None):
        self.onnx = onnx
        self.opset = opset
        self.outer = outer
        self.nodes: list = []
        self.names: dict[Value, str] = {} if outer is None else dict(outer.names)
        self.types: dict[str, dtypes.DType] = {} if outer is None else outer.types
        self.sources: dict[int, tuple[str, int]] = {} if outer is None else outer.sources
        self.initializers: dict = {} if outer is None else outer.initializers
        self.reserved: set[str] = set() if outer is None else outer.reserved  # names of arguments, weights and results
        self._constants: dict = {} if outer is None else outer._constants
        self._sizes: dict = {}
        self._count: list[int] = [0] if outer is None else outer._count
        self.symbols = graph.symbols if outer is None else outer.symbols
        self._used = {v for n in graph.nodes for v in n.inputs} | {v for v in graph.outputs if v is not None}

    # -- nodes

    def fresh(self, hint: str) -> str:
        self._count[0] += 1
        return unused(f"{hint}_{self._count[0]}", self.reserved)

    def emit(self, op: str, inputs, count: int = 1, as_tuple: bool = False, results=None, **attributes):
        """Adds a node; gives the name of its result, or a tuple of names. Operands are cast to types that kernels take.

        results: types of what it gives, where they do not follow from those of its operands
        """
        inputs = list(inputs)
        typed = typed_operands(op, len(inputs))
        dtype = next((self.types[inputs[i]] for i in typed if i < len(inputs) and inputs[i] in self.types), None)
        wide = wider(op, dtype) if dtype is not None else None
        if wide is not None:
            for i in typed:
                if i < len(inputs) and inputs[i]:
                    inputs[i] = self.cast(inputs[i], wide)
        outputs = self._add(op, inputs, count, attributes)
        if results is None and (dtype is not None or op in ("Cast", "Shape")):
            to = dtype_of(attributes["to"]) if op == "Cast" else None
            results = result_types(op, wide or dtype, count, to)
        self.types.update(zip(outputs, results or (), strict=False))
        if wide is not None:
            outputs = [self.cast(name, dtype) if self.types[name] is wide else name for name in outputs]
        return tuple(outputs) if count > 1 or as_tuple else outputs[0]

    def _add(self, op: str, inputs: list[str], count: int, attributes: dict) -> list[str]:
        outputs = [self.fresh(op.lower()) for _ in range(count)]
        self.nodes.append(self.onnx.helper.make_node(op, inputs, outputs, name=outputs[0], **attributes))
        return outputs

    def cast(self, name: str, dtype: dtypes.DType) -> str:
        return name if self.types.get(name) is dtype else self.emit("Cast", [name], to=code_of(dtype))

    def write(self, graph: Graph) -> list[str]:
        """The graph's nodes; names of its outputs."""
        around, self.symbols = self.symbols, graph.symbols
        for node in graph.nodes:
            if node.op.is_input or isinstance(
                node.op, Expand
            ):  # expanded where something needs it: most operators broadcast
                continue
            try:
                with graph.symbols.closed():
                    results = self._results(node)
            except FreeSizeError as error:
                self.refuse(node, f"what depends on a size that is free ({error})")
            for value, name in zip(node.outputs, results, strict=True):
                self.names[value] = name
        results = [self.name_of(v) for v in graph.outputs]
        self.symbols = around
        return results

    def _results(self, node: Node):
        """Names of what a node gives."""
        operands = self._operands(node)
        if node.op.checks:  # runtimes check on their own
            return operands
        writer = WRITERS.get(node.op.name)
        if writer is not None:
            result = writer(self, node, *operands)
            return result if isinstance(result, tuple) else (result,)
        if isinstance(node.op, Elementwise):
            return (expression(self, node, operands),)
        if made_of(node) is None:
            self.refuse(node, "it")
        return self.compose(node, operands)

    def compose(self, node: Node, operands) -> tuple[str, ...]:
        """Names of what a node gives, written by what it is made of."""
        made = composition(node, self.symbols)
        used = [self.is_used(v) for v in node.outputs]
        made.outputs = [v for v, u in zip(made.outputs, used, strict=True) if u]
        names = iter(self.inline(eliminate_dead(made), operands))
        return tuple(next(names) if u else "" for u in used)

    def name_of(self, value: Value) -> str:
        if value not in self.names:  # an expansion
            source = self.name_of(value.node.inputs[0])
            self.names[value] = WRITERS["expand"](self, value.node, source)
        return self.names[value]

    def _operands(self, node: Node) -> list[str]:
        """Names of the inputs; those that are only expanded as they were, where the operator broadcasts them to the same shape."""
        if isinstance(node.op, Elementwise) and len(node.inputs) > 1:
            sources = [v.node.inputs[0] if isinstance(v.op, Expand) else v for v in node.inputs]
            if _broadcasts(sources, node.outputs[0].shape):
                return [self.name_of(v) for v in sources]
        return [self.name_of(v) for v in node.inputs]

    def is_used(self, value: Value) -> bool:
        return value in self._used

    def refuse(self, node: Node, what: str):
        where = f" (at {node.source})" if node.source else ""
        raise UnsupportedError(
            f"onnx {node.op.name}",
            f"{what} cannot be written with operators of ONNX's operator set {self.opset}{where}",
        )

    # -- constants and sizes

    def constant(self, array: np.ndarray) -> str:
        array = np.asarray(array)
        key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            name = self._constants[key] = self.fresh("const")
            self.initializers[name] = self.onnx.numpy_helper.from_array(array, name)
            self.types[name] = dtype_of(self.initializers[name].data_type)
        return self._constants[key]

    def scalar(self, value, dtype: dtypes.DType) -> str:
        return self.constant(np.asarray(value).astype(dtype.numpy))

    def size(self, d) -> str:
        """A size as a 0-d int64."""
        if not isinstance(d, Sym):
            return self.constant(np.array(d, np.int64))
        key = repr(d)
        if key not in self._sizes:
            self._sizes[key] = self._polynomial(d)
        return self._sizes[key]

    def _polynomial(self, d: Sym) -> str:
        total = None
        for monomial, coefficient in d.terms.items():
            term = self.constant(np.array(coefficient, np.int64)) if coefficient != 1 or not monomial else None
            for atom in monomial:
                factor = self._atom(atom)
                term = factor if term is None else self.emit("Mul", [term, factor])
            total = term if total is None else self.emit("Add", [total, term])
        return total

    def _atom(self, atom) -> str:
        kind, *rest = atom
        if kind == "sym":
            name, axis = self.sources[rest[0]]
            shape = self.emit("Shape", [name], start=axis, end=axis + 1)
            return self.emit("Squeeze", [shape, self.constant(np.array([0], np.int64))])
        a, b = (self.size(v) for v in rest)
        if kind == "floordiv":
            if not known_nonnegative(rest[0]):  # Div rounds to zero
                a = self.emit("Sub", [a, self.emit("Mod", [a, b])])
            return self.emit("Div", [a, b])
        return self.emit({"mod": "Mod", "min": "Min", "max": "Max"}[kind], [a, b])

    def shape(self, dims) -> str:
        """Sizes as a 1-d int64."""
        if not any(isinstance(d, Sym) for d in dims):
            return self.constant(np.array([int(d) for d in dims], np.int64))
        axes = self.constant(np.array([0], np.int64))
        parts = [
            self.emit("Unsqueeze", [self.size(d), axes])
            if isinstance(d, Sym)
            else self.constant(np.array([d], np.int64))
            for d in dims
        ]
        return parts[0] if len(parts) == 1 else self.emit("Concat", parts, axis=0)

    def info(self, name: str, type: Type):
        dims = [f"d_{d}" if isinstance(d, Sym) else int(d) for d in type.shape]
        return self.onnx.helper.make_tensor_value_info(name, code_of(type.dtype), dims)

    # -- graphs inside

    def inline(self, graph: Graph, operands) -> tuple[str, ...]:
        """The nodes of a graph here, on these operands."""
        inner = dict(zip(graph.inputs, operands, strict=True))
        before, self.names = self.names, {**self.names, **inner}
        used, self._used = self._used, {v for n in graph.nodes for v in n.inputs} | set(graph.outputs)
        results = tuple(self.write(graph))
        self.names, self._used = before, used
        return results

    def subgraph(self, build, inputs=(), types=None):
        """A graph of its own, whose nodes build(writer) adds; what it reads from around it, it reads by name."""
        inner = Writer(self.onnx, Graph(), self.opset, self)
        results = build(inner)
        outputs = []
        for name in results:
            own = inner.fresh("out")
            inner.nodes.append(self.onnx.helper.make_node("Identity", [name], [own]))
            outputs.append(self.onnx.helper.make_value_info(own, self.onnx.TypeProto()))
        return self.onnx.helper.make_graph(inner.nodes, inner.fresh("body"), list(inputs), outputs)

    def branch(self, graph: Graph, operands):
        return self.subgraph(lambda inner: inner.inline(graph, operands))

    def loop_body(self, body, carried: list[Type], stacked=(), extra: int = 0):
        """A graph for Loop: body(writer, iteration, condition, *state) gives the condition, the state and what is stacked."""
        types = [
            Type(dtypes.int64, ()),
            Type(dtypes.bool_, ()),
            *carried,
            *(Type(dtypes.int64, ()) for _ in range(extra)),
        ]
        names = [self.fresh("in") for _ in types]
        infos = [self.info(n, t) for n, t in zip(names, types, strict=True)]
        self.types.update((n, t.dtype) for n, t in zip(names, types, strict=True))
        return self.subgraph(lambda inner: body(inner, *names), infos)
