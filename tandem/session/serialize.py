"""Deferred programs as JSON text and back, in the format of graphs of primitives (graph/serialize.py).

    {"format": 3, "deferred": true, "name", "seed", "symbols": [...], "guards": [...], "nodes": [...]}

A node is {"op": kind, "name", "fields", "inputs", "types"}, and may have "source", "control" and "device"; a variable's has
"initial" and "trainable".
Kinds are the classes of nodes.py, primitives.py and control/graphs.py, with the attributes that they say are `saved`. Nodes and
values are counted through all of the program: those of the bodies of a loop or branch come before the node that has the bodies.
Only a Merge reads what comes after it.

Besides the tags of other graphs: ["value", number], ["operand", index], ["number", x], ["random", null], ["stream", index],
["list", ...], ["dict", [key, x], ...], ["slice", a, b, c], ["ellipsis"], ["device", name], ["memory_format", name],
["op", name, field, ...], ["function", module or null, name], ["tensor", dtype, shape, device, base64 of its elements],
["body", {...}].

Python functions (py_func) and queues live in one process; a graph that has them is refused.
"""

from __future__ import annotations

import base64

import tandem.ops as F
from tandem import _runtime, devices
from tandem.devices import Device
from tandem.errors import Source, UnsupportedError
from tandem.graph.ir import Type, checking, revise
from tandem.graph.serialize import Reader, Writer, _relation, damage, document, dtype, read_symbols
from tandem.ops.define import FUNCTIONS, INTERNAL, _find
from tandem.ops.define import Op as Primitive
from tandem.ops.memory_format import FORMATS, MemoryFormat
from tandem.ops.rules import sizes_fit
from tandem.session.bodies import BodyGraph, Recorded
from tandem.session.build import Variable
from tandem.session.graph import Graph, StepNode, SymbolicTensor, infer, outside_graphs
from tandem.session.nodes import Call, Fed, Host, Number, Operand, PyFunc, Random, Step, Store
from tandem.session.nodes import Primitive as Applied
from tandem.tensors.constructors import zeros

# (inputs, results) of kinds that have a fixed number of them.
_ARITY = {
    "Fed": (0, 1), "Group": (0, 0), "Identity": (1, 1), "Detach": (1, 1), "Switch": (2, 2), "Enter": (1, 1), "Exit": (1, 1),
    "NextIteration": (1, 1), "LoopCond": (1, 1),
}  # fmt: skip


def write(graph: Graph) -> str:
    writer = DeferredWriter(graph)
    nodes = writer.nodes(graph)
    return document(graph.symbols, writer, deferred=True, name=graph.name, seed=graph.seed, nodes=nodes)


class DeferredWriter(Writer):
    kinds = Step.KINDS

    def __init__(self, graph: Graph):
        self.number: dict[SymbolicTensor, int] = {}
        self.place: dict[StepNode, int] = {}
        self._count(graph)

    def _count(self, graph: Graph):
        for node in graph.nodes:
            for body in node.op.bodies:
                self._count(body.graph)
            self.place[node] = len(self.place)
            for v in node.outputs:
                self.number[v] = len(self.number)

    def nodes(self, graph: Graph) -> list[dict]:
        return [self._node(node) for node in graph.nodes]

    def _node(self, node: StepNode) -> dict:
        kind = type(node.op).__name__
        if self.kinds.get(kind) is not type(node.op):
            raise _refused(node, *_why(node.op))
        try:
            fields = [self.value(getattr(node.op, f)) for f in self.saved(node.op)]
        except _Unwritten as error:
            raise _refused(node, f"has {error} among its arguments", None) from None
        item = {"op": kind, "name": node.name, "fields": fields, "inputs": [self.number[v] for v in node.inputs],
                "types": [self.value(v.type) for v in node.outputs]}  # fmt: skip
        if node.outputs and isinstance(node.outputs[0], Variable):
            item |= self.variable(node.outputs[0])
        if node.source is not None:
            item["source"] = list(node.source)
        if control := self.control(node):
            item["control"] = [self.place[n] for n in control]
        if node.device is not None:
            item["device"] = str(node.device)
        if node.beside in self.place:
            item["beside"] = self.place[node.beside]
        return item

    def saved(self, op: Step) -> tuple[str, ...]:
        return op.saved

    def control(self, node: StepNode):
        return node.control

    def variable(self, v: Variable) -> dict:
        return {"initial": self.number[v.initial], "trainable": v.trainable}

    def value(self, x):
        return ["list", *map(self.value, x)] if isinstance(x, list) else super().value(x)

    def other(self, x):
        if isinstance(x, SymbolicTensor):
            return ["value", self.number.get(x)]  # none: of a body that was given up, in which nothing is left
        if isinstance(x, Operand):
            return ["operand", x.index]
        if isinstance(x, Number):
            return ["number", self.value(x.value)]
        if isinstance(x, Random):
            return ["random", None] if x.index is None else ["stream", x.index]
        if isinstance(x, dict):
            return ["dict", *([self.value(k), self.value(y)] for k, y in x.items())]
        if isinstance(x, slice):
            return ["slice", self.value(x.start), self.value(x.stop), self.value(x.step)]
        if x is Ellipsis:
            return ["ellipsis"]
        if isinstance(x, Device):
            return ["device", str(x)]
        if isinstance(x, MemoryFormat):
            return ["memory_format", x.name]
        if isinstance(x, _runtime.Tensor):
            return _tensor(x)
        if isinstance(x, _runtime.OpFunction):
            return _function(x)
        if isinstance(x, Primitive):
            return ["op", x.name, *(self.value(getattr(x, f)) for f in x._fields)]
        if type(x).__module__ == "numpy" and getattr(x, "ndim", None) == 0:
            return self.value(x.item())
        if isinstance(x, Recorded):
            return self._body(x)
        raise _Unwritten(f"a {type(x).__name__}, {str(x)[:60]},")

    def _body(self, body) -> list:
        graph = body.graph
        return ["body", {
            "name": graph.name, "nodes": self.nodes(graph), "random": graph.random, "consts": list(body.consts),
            "arguments": [self.number[v] for v in body.arguments], "results": [self.number[v] for v in body.results],
            "lifted": [[self.number[v], self.number[inside]] for v, inside in graph.lifted.items()],
        }]  # fmt: skip


class _Unwritten(Exception):
    """What has no form outside this process."""


def _why(op: Step) -> tuple[str, str | None]:
    if isinstance(op, PyFunc):
        called = getattr(op.function, "__qualname__", repr(op.function))
        return f"calls the Python function {called}", "feed what it gives, or write it with operators of td"
    if isinstance(op, Host):
        return "works on a queue, which belongs to this process", "save a program that is fed by placeholders instead"
    return "is of a kind that nothing is known of here", None


def _refused(node: StepNode, why: str, fix: str | None) -> UnsupportedError:
    text = f"{node.name!r} ({node.op.name}) {why}; that has no form outside this program"
    return UnsupportedError("to_json", text, fix=fix, source=node.source)


def _tensor(x) -> list:
    with outside_graphs():
        here = x.detach().to("cpu").contiguous()
        data = b"" if not here.numel() else memoryview(here.reshape(-1).view("uint8").numpy())
    return ["tensor", x.dtype.name, list(x.shape), str(x.device), base64.b64encode(data).decode()]


def _function(function) -> list:
    name = function.__name__
    if FUNCTIONS.get(name) is function or INTERNAL.get(name) is function:
        return ["function", None, name]
    module, path = function.__module__, function.__wrapped__.__wrapped__.__qualname__
    try:
        found = _named(module, path)
    except (ImportError, AttributeError, ValueError):
        found = None
    if found is not function:
        raise _Unwritten(f"{path} of {module}, an operator made by this program,")
    return ["function", module, path]


def _named(module: str, path: str):
    if module.partition(".")[0] != "tandem":  # a file must not make anything else be imported
        raise ValueError(f"{path!r} of {module!r} is no operator function of Tandem")
    return _find(module, path)


# -- the way back


def read(found: dict) -> Graph:
    return read_all(found, DeferredReader)[0]


def read_all(found: dict, kind: type[DeferredReader]) -> tuple[Graph, DeferredReader]:
    with damage("its name"):
        graph = Graph(str(found["name"]))
        graph.seed = None if found["seed"] is None else int(found["seed"])
    symbols = graph.symbols
    with damage("its sizes"):
        reader = kind(symbols, read_symbols(found, symbols))
    start = symbols.mark()
    reader.nodes(graph, found["nodes"])
    symbols.back_to(start)  # what was asked on the way says nothing new
    with damage("its sizes"):
        for relation, expression in found["guards"]:
            symbols.require(_relation(relation), reader.dim(expression))
    return graph, reader


class DeferredReader(Reader):
    kinds = Step.KINDS
    trusted = False  # whether who wrote it has checked what operators are applied to

    def __init__(self, symbols, atoms):
        super().__init__(symbols, atoms)
        self.values: list[SymbolicTensor] = []
        self.steps: list[StepNode] = []
        self.graphs: list[Graph] = []  # those being read, the innermost last
        self.later: list[tuple[StepNode, list[int]]] = []
        self.sizes: dict[int, list] = {}  # number of a value -> symbols that are sizes of it, with the axis
        for index, origin in enumerate(symbols.origins):
            with damage(f"where size s{index} comes from"):
                if len(origin) != 3 or origin[0] not in ("axis", "unknown"):
                    raise ValueError(f"{origin!r} is no place")
            if origin[0] == "axis":
                _, (_, number), axis = origin
                symbols.origins[index] = ("unknown", "a tensor", axis)
                self.sizes.setdefault(number, []).append((index, axis))

    def nodes(self, graph: Graph, items: list):
        self.graphs.append(graph)
        with damage(f"{graph.name!r}"):
            items = list(items)
        for at, item in enumerate(items):
            shown = item.get("name") if isinstance(item, dict) else None
            with damage(f"node {at if shown is None else repr(shown)} of {graph.name!r}"):
                self._node(graph, item)
        self.graphs.pop()
        if not self.graphs:
            for node, numbers in self.later:
                with damage(f"node {node.name!r} of {graph.name!r}"):
                    revise(node, "inputs", tuple(self._input(node.graph, n) for n in numbers))

    def _node(self, graph: Graph, item: dict):
        kind, name, numbers = item["op"], item["name"], list(item["inputs"])
        if kind not in self.kinds:
            raise ValueError(f"there is no kind of node {kind!r}")
        if not isinstance(name, str) or name in graph._by_name:
            raise ValueError("its name is no text, or that of another node")
        op = self.kinds[kind](*[self.value(f) for f in item["fields"]])
        if isinstance(op, Applied) and not isinstance(op.op, Primitive):
            raise ValueError("it applies no operator")
        if hasattr(op, "run") and not self.trusted:
            op.run = _held_to_rules(op.run)
        if kind == "Merge" and any(n >= len(self.values) for n in numbers):
            inputs = [self._input(graph, n) for n in numbers if n < len(self.values)]
        else:
            inputs = [self._input(graph, n) for n in numbers]
        types = [self.type(t) for t in item["types"]]
        for t in types:
            sizes_fit(op, t)
        initial = self._input(graph, item["initial"]) if "initial" in item else None
        if not self.trusted:
            self._check(graph, kind, op, inputs, types, initial, len(numbers))
        if initial is not None:
            types = [initial.type]
        elif isinstance(op, Fed) and op.tensor is not None:
            types = [Type(op.tensor.dtype, tuple(op.tensor.shape))]
        control = tuple(self.steps[self.index(i, self.steps)] for i in item.get("control", ()))
        device = devices.named(item["device"]) if "device" in item else None
        node = StepNode(graph, op, inputs, types, name, control, device)
        revise(node, "source", _read_source(item["source"]) if "source" in item else None)
        revise(node, "beside", self.steps[self.index(item["beside"], self.steps)] if "beside" in item else None)
        if initial is not None:
            Variable.of(node, initial, bool(item["trainable"]))
        if len(inputs) != len(numbers):
            self.later.append((node, numbers))
        graph.restore_node(node)
        self.steps.append(node)
        for v in node.outputs:
            self.values.append(v)
            self._restore_sizes(len(self.values) - 1)

    def _input(self, graph: Graph, number) -> SymbolicTensor:
        v = self.values[self.index(number, self.values)]
        if v.node.graph is not graph:
            raise ValueError(f"it reads {v.name!r}, which is of another graph")
        return v

    def _check(self, graph: Graph, kind: str, op: Step, inputs: list, types: list, initial, count: int):
        """What a run relies on: as many inputs and results as a node of this kind has, and arguments that its operator takes."""
        given = (count, len(types))
        if given != _ARITY.get(kind, given):
            raise ValueError(f"{op.name} has {_ARITY[kind][0]} inputs and {_ARITY[kind][1]} results, not {given}")
        if isinstance(op, Fed):
            if op.name not in ("placeholder", "variable", "constant", "argument", "seed"):
                raise ValueError(f"{op.name!r} does not come from outside")
            if (op.name == "variable") != (initial is not None) or (op.name in ("constant", "seed")) != (
                op.tensor is not None
            ):
                raise ValueError("only a variable has an initial value, only a constant or a seed elements")
        elif isinstance(op, Store):
            if (
                not isinstance(op.variable, Variable)
                or len(inputs) != 1 + op.name.startswith("scatter")
                or len(types) != 1
            ):
                raise ValueError("it stores no value in a variable")
        elif kind == "Gradients":
            if (
                (len(op.given), len(types)) != (op.ys, op.xs)
                or len(inputs) != op.ys + op.xs + sum(op.given)
                or not op.ys
            ):
                raise ValueError(f"{len(inputs)} inputs are not {op.ys} results and {op.xs} tensors with gradients")
        elif kind in ("Print", "Merge"):
            if not count or len(types) != (1 if kind == "Print" else 2):
                raise ValueError("it passes nothing on")
        elif isinstance(op, (Call, Applied)) or op.bodies:
            if op.bodies and len(inputs) < op.operands:
                raise ValueError(f"{op.operands} operands, but {len(inputs)} inputs")
            made = [t for t in infer(graph, lambda trace, values: op.run(trace, None, values), inputs) if t is not None]
            if isinstance(op, Call) and op.written:
                if not all(isinstance(v, Variable) for v in op.written):
                    raise ValueError("it writes what is no variable")
                made = made[: len(op.written)]
            if len(made) != len(types) or not all(map(_may_be, made, types)):
                raise ValueError(f"its operator makes it {made}, but it is {types}")

    def _restore_sizes(self, number: int):
        """Symbols that are the sizes of a value, now that it is there."""
        v = self.values[number]
        for index, axis in self.sizes.get(number, ()):
            axis = self.index(axis, v.type.shape)
            self.symbols.origins[index] = ("axis", v, axis)
            v.graph._sizes[v, axis] = self.atoms[index]

    def other(self, tag, rest):
        if tag == "value":
            return self.values[self.index(rest[0], self.values)]
        if tag in ("operand", "stream"):
            if isinstance(rest[0], bool) or not isinstance(rest[0], int) or rest[0] < 0:
                raise ValueError(f"there is no operand {rest[0]!r}")
            return Operand(rest[0]) if tag == "operand" else Random(rest[0])
        if tag == "number":
            number = self.value(rest[0])
            if not isinstance(number, bool | int | float):
                raise ValueError(f"{rest[0]!r} is no number")
            return Number(number)
        if tag == "random":
            if rest[0] is not None:
                raise ValueError(
                    "it samples with a seed in the way of older versions; build and save the program again"
                )
            return Random(None)
        if tag == "list":
            return [self.value(x) for x in rest]
        if tag == "dict":
            return {self.value(k): self.value(x) for k, x in rest}
        if tag == "slice":
            return slice(*[self.value(x) for x in rest])
        if tag == "ellipsis":
            return Ellipsis
        if tag == "device":
            return Device(rest[0])
        if tag == "memory_format":
            return FORMATS[rest[0]]
        if tag == "tensor":
            return _read_tensor(*rest)
        if tag == "function":
            return _read_function(*rest)
        if tag == "op":
            if rest[0] == "input":
                raise ValueError("an input of a graph of primitives is none of a deferred one")
            return self.op(rest[0], rest[1:])
        if tag == "body":
            return self._read_body(rest[0])
        return super().other(tag, rest)

    def _read_body(self, found: dict):
        around = self.graphs[-1]
        graph = BodyGraph(around, str(found["name"]))
        self.nodes(graph, found["nodes"])
        graph.random = bool(found["random"])
        for outside, inside in found["lifted"]:
            v = self.values[self.index(outside, self.values)]
            if v.node.graph not in self.graphs:
                raise ValueError(f"it uses {v.name!r}, which is of no graph around it")
            graph.lifted[v] = self._input(graph, inside)
        body = Recorded(
            graph, [self._input(graph, n) for n in found["arguments"]], [self._input(graph, n) for n in found["results"]], None
        )  # fmt: skip
        body.consts = [int(i) for i in found["consts"]]
        return body


def _held_to_rules(run):
    """The primitives that a node of a file becomes are looked at wherever it runs (ops/rules.py)."""

    def checked(trace, node, operands):
        with checking():
            return run(trace, node, operands)

    return checked


def _may_be(made: Type, said: Type) -> bool:
    """Whether what an operator makes may be what the file says: sizes that are not known yet may be any."""
    return (
        made.dtype is said.dtype
        and len(made.shape) == len(said.shape)
        and all(
            a == b for a, b in zip(made.shape, said.shape, strict=True) if isinstance(a, int) and isinstance(b, int)
        )
    )


def _read_source(parts) -> Source:
    file, line, function = parts
    if not isinstance(file, str) or not isinstance(line, int) or not isinstance(function, str):
        raise ValueError(f"{parts!r} is no line of a program")
    return Source(file, line, function)


def _read_tensor(name: str, shape: list, device: str, text: str):
    kind = dtype(name)
    data = bytearray(base64.b64decode(text, validate=True))
    count = 1
    for n in shape:
        count *= Reader.index(n, range(2**48))
    if count * kind.itemsize != len(data):
        raise ValueError(f"a tensor of {kind} {tuple(shape)} does not take {len(data)} bytes")
    with outside_graphs():
        made = F.frombuffer(data, dtype=kind).clone() if count else zeros(0, dtype=kind)
        made = made.reshape(tuple(shape))
        return made if device == "cpu" else made.to(device)


def _read_function(module: str | None, name: str):
    if module is None:
        found = FUNCTIONS.get(name, INTERNAL.get(name))
    else:
        try:
            found = _named(module, name)
        except (ImportError, AttributeError):
            found = None
    if not isinstance(found, _runtime.OpFunction):
        raise ValueError(
            f"there is no operator function {name!r} here; the graph was saved with another set of operators"
        )
    return found
