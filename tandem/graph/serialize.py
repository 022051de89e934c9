"""Graphs as JSON text and back: `graph.to_json()`, `Graph.from_json(text)`, `graph.save(path)`, `Graph.load(path)`.

    {"format": 2, "name", "symbols": [...], "guards": [...], "nodes": [...], "outputs": [...], "mutations": [...]}

An operator is its registered name and its attributes. Numbers and text stand for themselves; everything else is a list with a tag:
["tuple", ...], ["dtype", name], ["type", dtype, shape, weak], ["float", "nan"], ["sym", [coefficient, atom, ...], ...],
["graph", {...}] for the graphs of regions, which have no symbols of their own. A node may have "control", the numbers of the nodes
that it waits for, and "device".
"""

from __future__ import annotations

import json
import math

from tandem import devices, dtypes
from tandem.graph.ir import Graph, Node, Type, Value
from tandem.graph.symbolic import _BINARY, Sym, Symbols

FORMAT = 2
_KNOWN = (1, 2)  # 1 had no control inputs and devices


def to_json(graph: Graph) -> str:
    symbols = graph.symbols
    document = {
        "format": FORMAT,
        "symbols": [
            {"hint": hint, "origin": list(origin), "not_one": i in symbols._not_one, "signed": i in symbols._signed}
            for i, (hint, origin) in enumerate(zip(symbols.hints, symbols.origins, strict=True))
        ],
        "guards": [[relation, _pack(expression)] for relation, expression in symbols.guards],
        **_pack_graph(graph),
    }
    return json.dumps(document, allow_nan=False)


def _pack_graph(graph: Graph) -> dict:
    number: dict[Value | None, int | None] = {None: None}
    nodes = []
    place = {node: i for i, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        for v in node.outputs:
            number[v] = len(number) - 1
        item = {"op": node.op.name, "fields": [_pack(getattr(node.op, f)) for f in node.op._fields],
                "inputs": [number[v] for v in node.inputs], "types": [_pack(v.type) for v in node.outputs]}  # fmt: skip
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


def from_json(text: str) -> Graph:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is no graph that was saved: {error}") from None
    missing = {"format", "symbols", "guards", "nodes", "outputs", "mutations"} - set(
        document if isinstance(document, dict) else ()
    )
    if missing:
        raise ValueError(f"this is no graph that was saved: it has no {', '.join(sorted(missing))}")
    if document["format"] not in _KNOWN:
        raise ValueError(f"this graph has format {document.get('format')!r}; only {FORMAT} and below are known")
    symbols = Symbols()
    atoms = [
        symbols.new(s["hint"], tuple(s["origin"]), not_one=s["not_one"], signed=s["signed"])
        for s in document["symbols"]
    ]
    for relation, expression in document["guards"]:
        symbols.require(relation, _unpack(expression, atoms))
    return _unpack_graph(document, symbols, atoms)


def _unpack_graph(document: dict, symbols: Symbols, atoms: list) -> Graph:
    from tandem.ops.define import PRIMITIVES

    graph = Graph(symbols, document["name"])
    values: list[Value] = []
    for item in document["nodes"]:
        if item["op"] not in PRIMITIVES:
            raise ValueError(
                f"there is no operator {item['op']!r} here; the graph was saved with another set of operators"
            )
        op = PRIMITIVES[item["op"]](*[_unpack(f, atoms, symbols) for f in item["fields"]])
        types = tuple(_unpack(t, atoms) for t in item["types"])
        inputs = tuple(values[i] for i in item["inputs"])
        control = tuple(graph.nodes[i] for i in item.get("control", ()))
        device = devices.named(item["device"]) if "device" in item else None
        node = Node(op, inputs, types, item.get("source"), len(graph.nodes), control, device)
        graph.nodes.append(node)
        values += node.outputs
        if op.name == "input":
            graph.inputs.append(node.outputs[0])
    graph.outputs = [None if i is None else values[i] for i in document["outputs"]]
    graph.mutations = [(position, values[i]) for position, i in document["mutations"]]
    return graph


def _pack(x):
    if x is None or isinstance(x, bool | int | str):
        return x
    if isinstance(x, float):
        return x if math.isfinite(x) else ["float", repr(x)]
    if isinstance(x, complex):
        return ["complex", _pack(x.real), _pack(x.imag)]
    if isinstance(x, tuple | list):
        return ["tuple", *map(_pack, x)]
    if isinstance(x, dtypes.DType):
        return ["dtype", x.name]
    if isinstance(x, Type):
        return ["type", x.dtype.name, _pack(x.shape), x.weak]
    if isinstance(x, Sym):
        return ["sym", *([coefficient, *map(_pack_atom, monomial)] for monomial, coefficient in x.terms.items())]
    if isinstance(x, Graph):
        return ["graph", _pack_graph(x)]
    raise TypeError(f"{type(x).__name__} cannot be written as JSON")


def _pack_atom(atom):
    return atom[1] if atom[0] == "sym" else [atom[0], _pack(atom[1]), _pack(atom[2])]


def _unpack(x, atoms, symbols=None):
    if not isinstance(x, list):
        return x
    tag, *rest = x
    if tag == "tuple":
        return tuple(_unpack(item, atoms, symbols) for item in rest)
    if tag == "graph":
        return _unpack_graph(rest[0], symbols, atoms)
    if tag == "dtype":
        return _dtype(rest[0])
    if tag == "type":
        return Type(_dtype(rest[0]), _unpack(rest[1], atoms), rest[2])
    if tag == "float":
        return float(rest[0])
    if tag == "complex":
        return complex(_unpack(rest[0], atoms), _unpack(rest[1], atoms))
    total = 0
    for coefficient, *factors in rest:
        term = coefficient
        for factor in factors:
            if isinstance(factor, int):
                term = term * atoms[factor]
            else:
                kind, a, b = factor
                term = term * _BINARY[kind](_unpack(a, atoms), _unpack(b, atoms))
        total = total + term
    return total


def _dtype(name: str) -> dtypes.DType:
    return next(d for d in dtypes.ALL if d.name == name)
