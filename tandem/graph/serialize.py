"""Graphs as JSON text and back: `graph.to_json()`, `Graph.from_json(text)`, `graph.save(path)`, `Graph.load(path)`.

    {"format": 3, "name", "symbols": [...], "guards": [...], "nodes": [...], "outputs": [...], "mutations": [...]}

An operator is its registered name and its attributes. Numbers and text stand for themselves; everything else is a list with a tag:
["tuple", ...], ["dtype", name], ["type", dtype, shape, weak], ["float", "nan"], ["sym", [coefficient, atom, ...], ...],
["graph", {...}] for the graphs of regions, which have no symbols of their own. A node may have "control", the numbers of the nodes
that it waits for, and "device".

Deferred programs (td.Graph) have "deferred": true, and nodes of their own kind (session/serialize.py).

A file may hold anything: reading one gives a graph whose types were inferred again, or a CheckpointError (also a ValueError)
that says what is wrong where.
"""

from __future__ import annotations

import contextlib
import json
import math

from tandem import devices, dtypes, hooks
from tandem.errors import CheckpointError, InternalError
from tandem.graph.ir import Graph, Node, Type, Value
from tandem.graph.primitives import PRIMITIVES
from tandem.graph.symbolic import BINARY, Dim, Sym, Symbols
from tandem.graph.verify import check_node, verify

FORMAT = 3
_KNOWN = (1, 2, 3)  # 1 had no control inputs and devices, 2 no deferred programs
DEEPEST = 400  # lists and objects in one another
_NO_GRAPH = "this is no graph that was saved: "


def to_json(graph: Graph) -> str:
    writer = Writer()
    return document(graph.symbols, writer, **writer.graph(graph))


def document(symbols: Symbols, writer: Writer, **parts) -> str:
    """The text of a graph: what all kinds have, and the parts that are its own."""
    described = [
        {"hint": hint, "origin": [writer.value(x) for x in origin], "not_one": i in symbols._not_one,
         "signed": i in symbols._signed}
        for i, (hint, origin) in enumerate(zip(symbols.hints, symbols.origins, strict=True))
    ]  # fmt: skip
    guards = [_written_guard(symbols, writer, guard) for guard in symbols.guards]
    return json.dumps({"format": FORMAT, "symbols": described, "guards": guards, **parts}, allow_nan=False)


def _written_guard(symbols: Symbols, writer: Writer, guard: tuple) -> list:
    relation, expression = guard
    reason = symbols.reasons.get(guard)
    return [relation, writer.value(expression), *([] if reason is None else [reason])]


def from_json(text: str) -> Graph:
    try:
        found = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{_NO_GRAPH}{error}") from None
    found = found if isinstance(found, dict) else {}
    _refuse_deep(found)
    deferred = found.get("deferred") is True
    needed = {"format", "name", "symbols", "guards", "nodes", *(("seed",) if deferred else ("outputs", "mutations"))}
    missing = needed - set(found)
    if missing:
        raise Damaged(f"{_NO_GRAPH}it has no {', '.join(sorted(missing))}")
    if found["format"] not in _KNOWN:
        raise Damaged(f"this graph has format {found['format']!r}; only {FORMAT} and below are known")
    if deferred:
        return hooks.read_deferred(found)
    with damage("its sizes"):
        symbols = Symbols()
        atoms = read_symbols(found, symbols)
        reader = Reader(symbols, atoms)
        for relation, expression, *reason in found["guards"]:
            symbols.require(_relation(relation), reader.dim(expression), *_reason(reason))
    with damage("it"):
        graph = reader.graph(found)
        _check_origins(graph)
        verify(graph, known=set(graph.nodes))  # those were looked at one by one
    graph.from_file = True
    return graph


def _reason(found: list) -> list[str]:
    if len(found) > 1 or not all(isinstance(r, str) for r in found):
        raise ValueError("a guard has a relation, an expression and a reason")
    return found


def _no_number(text: str):
    raise ValueError(f"{text} is no number of a graph")


def _refuse_deep(found):
    """Walks what was read without recursion: what follows has some."""
    level, depth = [found], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise Damaged(f"{_NO_GRAPH}it is nested more than {DEEPEST} levels deep")
        level = [y for x in level for y in (x.values() if isinstance(x, dict) else x) if isinstance(y, (dict, list))]


def _check_origins(graph: Graph):
    """Whether symbols are the sizes of inputs that there are."""
    symbols = graph.symbols
    for index, origin in enumerate(symbols.origins):
        with damage(f"where size s{index} comes from"):
            kind, *at = origin
            if len(at) != {"size": 2, "stride": 2, "int": 1, "local": 0}.get(kind):
                raise ValueError(f"{origin!r} is no place")
            if kind == "int":
                Reader.index(at[0], range(2**31))
            elif kind != "local":
                v = graph.inputs[Reader.index(at[0], graph.inputs)]
                Reader.index(at[1], v.shape)


def load(path) -> Graph:
    with open(path, "rb") as file:
        content = file.read()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise Damaged(f"{_NO_GRAPH}{path} is no text (byte {error.start} is no UTF-8)") from None
    return from_json(text)


def read_symbols(found: dict, symbols: Symbols) -> list[Dim]:
    return [
        symbols.new(_number(s["hint"]), tuple(s["origin"]), not_one=bool(s["not_one"]), signed=bool(s["signed"]))
        for s in found["symbols"]
    ]


def _number(n) -> int:
    """n, an integer of 64 bits."""
    if isinstance(n, bool) or not isinstance(n, int) or not -(2**63) <= n < 2**63:
        raise ValueError(f"{str(n)[:40]} is no integer of 64 bits")
    return n


def _relation(text: str) -> str:
    if text not in ("==", "!=", "<", ">="):
        raise ValueError(f"there is no relation {text!r}")
    return text


@contextlib.contextmanager
def damage(what: str):
    """Whatever goes wrong inside comes from a file that is no graph: says so, and where."""
    try:
        yield
    except Damaged:
        raise
    except KeyError as error:
        raise Damaged(f"{_NO_GRAPH}{what} has no {error}") from None
    except (InternalError, RecursionError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, NotImplementedError,
            RuntimeError) as error:  # fmt: skip
        raise Damaged(f"{_NO_GRAPH}{what} is wrong: {str(error) or type(error).__name__}") from None


class Damaged(CheckpointError, ValueError):
    """A file that holds no graph."""

    def __init__(self, text: str):
        super().__init__(None, text)


class Writer:
    """Puts what graphs hold into lists, dicts, numbers and text."""

    def graph(self, graph: Graph) -> dict:
        number: dict[Value | None, int | None] = {None: None}
        nodes = []
        place = {node: i for i, node in enumerate(graph.nodes)}
        for node in graph.nodes:
            for v in node.outputs:
                number[v] = len(number) - 1
            item = {"op": node.op.name, "fields": [self.value(getattr(node.op, f)) for f in node.op._fields],
                    "inputs": [number[v] for v in node.inputs], "types": [self.value(v.type) for v in node.outputs]}  # fmt: skip
            if node.source:
                item["source"] = node.source
            if node.control:
                item["control"] = [place[n] for n in node.control]
            if node.device is not None:
                item["device"] = str(node.device)
            nodes.append(item)
        return {
            "name": graph.name,
            "nodes": nodes,
            "outputs": [number[v] for v in graph.outputs],
            "mutations": [[position, number[v]] for position, v in graph.mutations],
        }

    def value(self, x):
        if x is None or isinstance(x, bool | int | str):
            return x
        if isinstance(x, float):
            return x if math.isfinite(x) else ["float", repr(x)]
        if isinstance(x, complex):
            return ["complex", self.value(x.real), self.value(x.imag)]
        if isinstance(x, tuple | list):
            return ["tuple", *map(self.value, x)]
        if isinstance(x, dtypes.DType):
            return ["dtype", x.name]
        if isinstance(x, Type):
            return ["type", x.dtype.name, self.value(x.shape), x.weak]
        if isinstance(x, Sym):
            return ["sym", *([coefficient, *map(self._atom, monomial)] for monomial, coefficient in x.terms.items())]
        if isinstance(x, Graph):
            return ["graph", self.graph(x)]
        return self.other(x)

    def _atom(self, atom):
        return atom[1] if atom[0] == "sym" else [atom[0], self.value(atom[1]), self.value(atom[2])]

    def other(self, x):
        raise TypeError(f"{type(x).__name__} cannot be written as JSON")


class Reader:
    """The way back. `atoms`: the symbols, in order."""

    def __init__(self, symbols: Symbols, atoms: list[Dim]):
        self.symbols = symbols
        self.atoms = atoms

    def graph(self, found: dict) -> Graph:
        graph = Graph(self.symbols, found["name"])
        values: list[Value] = []
        for at, item in enumerate(found["nodes"]):
            with damage(f"node {at} of {found['name']!r}"):
                inputs = tuple(values[self.index(i, values)] for i in item["inputs"])
                control = tuple(graph.nodes[self.index(i, graph.nodes)] for i in item.get("control", ()))
                device = devices.named(item["device"]) if "device" in item else None
                types = tuple(self.type(t) for t in item["types"])
                op = self.op(item["op"], item["fields"])
                source = item.get("source")
                if not isinstance(source, str | None):
                    raise ValueError(f"{source!r} is no line of a program")
                node = Node(op, inputs, types, source, at, control, device)
                for t in types:  # before anything is computed with them
                    op.check_sizes(t)
                check_node(node)
                graph.nodes.append(node)
                values += node.outputs
                if op.is_input:
                    graph.inputs.append(node.outputs[0])
        with damage(f"what {found['name']!r} gives"):
            graph.outputs = [None if i is None else values[self.index(i, values)] for i in found["outputs"]]
            graph.mutations = [
                (self.index(position, graph.inputs), values[self.index(i, values)])
                for position, i in found["mutations"]
            ]
        return graph

    def op(self, name: str, fields: list):
        if not isinstance(fields, list) or not isinstance(name, str):
            raise ValueError("its operator is no name with attributes")
        kind = PRIMITIVES.get(name)
        if kind is None or name == "incoming" or kind.__module__.startswith("tandem.codegen"):  # those are never saved
            raise ValueError(f"there is no operator {name!r} here; the graph was saved with another set of operators")
        if len(fields) > len(kind._fields):
            raise ValueError(f"{name} has {len(kind._fields)} attributes, not {len(fields)}")
        missing = [f for f in kind._fields[len(fields) :] if not hasattr(kind, f)]
        if missing:
            raise ValueError(f"{name}: its attribute {missing[0]} is missing")
        return kind(*[self.value(f) for f in fields])

    @staticmethod
    def index(i, known) -> int:
        """i, which counts something that is there."""
        if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < len(known):
            raise ValueError(f"it refers to number {i!r}, of {len(known)} before it")
        return i

    def type(self, x) -> Type:
        made = self.value(x)
        if not isinstance(made, Type):
            raise ValueError(f"{x!r} is no type")
        return made

    def dim(self, x) -> Dim:
        made = self.value(x)
        return made if isinstance(made, Sym) else _number(made)

    def value(self, x):
        if not isinstance(x, list):
            if isinstance(x, dict):
                raise ValueError(f"{str(x)[:60]} has no tag")
            return x
        tag, *rest = x
        if tag == "tuple":
            return tuple(self.value(item) for item in rest)
        if tag == "graph":
            return self.graph(rest[0])
        if tag == "dtype":
            return dtype(rest[0])
        if tag == "type":
            return Type(dtype(rest[0]), tuple(self.dim(d) for d in rest[1][1:]), bool(rest[2]))
        if tag == "float":
            if not isinstance(rest[0], str):
                raise ValueError(f"{str(rest[0])[:40]!r} is no float")
            return float(rest[0])
        if tag == "complex":
            return complex(self.value(rest[0]), self.value(rest[1]))
        if tag == "sym":
            return self._sym(rest)
        return self.other(tag, rest)

    def _sym(self, terms) -> Dim:
        total = 0
        for coefficient, *factors in terms:
            term = _number(coefficient)
            for factor in factors:
                if isinstance(factor, int):
                    term = term * self.atoms[self.index(factor, self.atoms)]
                else:
                    kind, a, b = factor
                    term = term * BINARY[kind](self.dim(a), self.dim(b))
            total = total + term
        if isinstance(total, Sym):
            for n in (total.hint, *total.terms.values()):
                _number(n)
        return total

    def other(self, tag, rest):
        raise ValueError(f"nothing is written as {tag!r}")


def dtype(name: str) -> dtypes.DType:
    for d in dtypes.ALL:
        if d.name == name:
            return d
    raise ValueError(f"there is no dtype {name!r}")
