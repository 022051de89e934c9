"""The page of a graph: scopes that open and close, steps and operators with names, shapes, costs and source lines.

Note [Levels]
A graph is shown on up to two levels. A box is a step that runs: a kernel with the operators that are fused into it, or a call
into the library; or it is an operator, which is all that is known without a schedule. Boxes belong to scopes: the phases of a
training step and the modules in it (Note [Labels] in tracing/labels.py), names with slashes of a deferred graph, or else
functions. tandem/pages/graph.js draws what is written here.
"""

from __future__ import annotations

import linecache
import os

from tandem import pages
from tandem.graph.ir import Graph, Node, Value
from tandem.graph.symbolic import Sym, hint
from tandem.graph.work import work_of

_MOVES = {"reshape", "permute", "expand", "slice", "constant", "size"}
_HIDDEN = ("constant", "size")
_DEVICES = ("#cfe3f7", "#fbd9b5", "#cdeac0", "#f3c9d3", "#dccff0", "#f6efb5", "#c4e9e4", "#e3d5c5")
_WORDS = {"steps": ("step", "steps"), "operators": ("operator", "operators")}
_MOST_SOURCE = 300_000  # characters of a file that a page carries


class _Box:
    """A step or an operator, with the nodes in it."""

    def __init__(self, kind: str, title: str, nodes: list[Node]):
        self.kind, self.title, self.nodes = kind, title, nodes


def render(
    graph: Graph, schedule=None, title: str = "", peak: int | None = None, devices: dict[Node, str] | None = None
) -> str:
    """devices: where nodes run, by which boxes are coloured then."""
    title = title or (graph.labels.name if graph.labels else "") or graph.name or "graph"
    return pages.page(
        title, data_of(graph, schedule, title, peak, devices), "graph.js",
        noscript="This page needs scripts. print(graph) shows the graph as text.",
    )  # fmt: skip


def data_of(graph: Graph, schedule=None, title: str = "", peak: int | None = None, devices=None) -> dict:
    """What the page shows, as JSON."""
    page = _Page(graph, devices)
    levels = {} if schedule is None else {"steps": page.level(_steps(graph, schedule))}
    levels["operators"] = page.level(
        [_Box("node", n.op.name, [n]) for n in graph.nodes if n.op.name not in ("input", *_HIDDEN)]
    )
    facts = [f"{len(graph.nodes)} nodes"]
    if schedule is not None:
        facts.append(f"{len(schedule.steps)} steps")
    if peak is not None:
        facts.append(f"peak {show_bytes(peak)} besides inputs")
    colors = {d: _DEVICES[i % len(_DEVICES)] for i, d in enumerate(dict.fromkeys((devices or {}).values()))}
    return {
        "title": title, "facts": facts, "levels": levels, "words": _WORDS, "scopes": page.scopes,
        "inputs": page.inputs, "files": page.files, "paths": page.paths, "devices": colors or None,
    }  # fmt: skip


def _steps(graph: Graph, schedule) -> list[_Box]:
    boxes, known = [], set(graph.nodes)
    for i, step in enumerate(schedule.steps):
        library = hasattr(step, "routine")
        nodes = list(step.nodes) if hasattr(step, "nodes") else [step.node]
        nodes = [n for n in nodes if n in known] or nodes
        label = step.routine if library else step.kernel.name
        if hasattr(step, "follows"):
            label += f" then {step.follows.kernel.name}"
        boxes.append(_Box("library" if library else "kernel", f"{i}: {label}", list(dict.fromkeys(nodes))))
    return boxes


class _Page:
    """Scopes, sources and names, which the levels share."""

    def __init__(self, graph: Graph, devices: dict[Node, str] | None):
        self.graph, self.devices, self.labels = graph, devices, graph.labels
        self.scopes = [{"name": "", "parent": 0}]
        self._numbers: dict[tuple[str, ...], int] = {(): 0}
        self.inputs = self.scope(("inputs",))
        self.files: dict[str, str] = {}  # texts by short name
        self.paths: dict[str, str] = {}
        self._short: dict[str, str] = {}
        self.names = {v: f"%{i}" for i, v in enumerate(v for n in graph.nodes for v in n.outputs)}
        self.input_names = {v: self._input_name(v.node) for v in graph.inputs}

    def scope(self, path: tuple[str, ...]) -> int:
        found = self._numbers.get(path)
        if found is None:
            parent = self.scope(path[:-1])
            found = self._numbers[path] = len(self.scopes)
            self.scopes.append({"name": path[-1], "parent": parent})
        return found

    def _input_name(self, node: Node) -> str:
        if node.op.is_input and self.labels is not None and node.op.position < len(self.labels.inputs):
            return self.labels.inputs[node.op.position]
        return getattr(node, "name", "")

    def path_of(self, node: Node) -> tuple[str, ...]:
        call = getattr(node.source, "call", None)
        if self.labels is not None and isinstance(call, int) and call < len(self.labels.calls):
            return self.labels.calls[call]
        if "/" in getattr(node, "name", ""):
            return tuple(node.name.split("/")[:-1])
        source = getattr(node.source, "source", node.source)
        function = getattr(source, "function", "")
        return (function,) if function and function != "<module>" else ()

    def source_of(self, node: Node) -> tuple[str, int]:
        source = getattr(node.source, "source", node.source)
        file, line = getattr(source, "file", ""), getattr(source, "line", 0)
        if not file:
            return "", 0
        if file not in self._short:
            short = os.path.basename(file)
            while short in self.paths:  # another file of this name
                short = f"{short}'"
            self._short[file], self.paths[short] = short, os.path.abspath(file)
            text = "".join(linecache.getlines(file))
            if text and len(text) <= _MOST_SOURCE:
                self.files[short] = text
        return self._short[file], line

    # -- levels

    def level(self, boxes: list[_Box]) -> dict:
        boxes = [
            _Box("input", self.input_names[v] or f"input {i}", [v.node]) for i, v in enumerate(self.graph.inputs)
        ] + boxes
        box_of: dict[Node, int] = {}
        for number, box in enumerate(boxes):
            for node in box.nodes:
                box_of.setdefault(node, number)
        edges = _edges(boxes, box_of)
        waits = {
            (box_of[n], i): n for i, box in enumerate(boxes) for node in box.nodes for n in node.control if n in box_of
        }
        made = [[a, b, sum(map(_size, values)), ", ".join(f"{self.names[v]}: {v.type!r}" for v in values if v in self.names)]
                for (a, b), values in edges.items()]  # fmt: skip
        made += [
            [a, b, 0, f"{boxes[b].title} waits for {boxes[a].title}", 1]
            for a, b in waits
            if a != b and (a, b) not in edges
        ]
        read: dict[int, list[str]] = {}
        for a, b in edges:
            if boxes[a].kind == "input":
                read.setdefault(b, []).append(boxes[a].title)
        return {"nodes": [self._node(box, read.get(i, [])) for i, box in enumerate(boxes)], "edges": made}

    def _node(self, box: _Box, names: list[str]) -> dict:
        last = box.nodes[-1]
        file, line = self.source_of(last)
        if box.kind == "input":
            parts = box.title.split(".")
            path, title, cost = ("inputs", *parts[:-1]), parts[-1], 0.0
        else:
            path, title, cost = self.path_of(last), box.title, sum(map(_cost, box.nodes))
        notes = ", ".join(repr(v.type) for v in last.outputs)
        if last.device is not None:
            notes += f" on {last.device}"
        made = {
            "title": title, "kind": box.kind, "scope": self.scope(path), "note": notes, "cost": cost, "names": names,
            "bytes": sum(_size(v) for node in box.nodes[-1:] for v in node.outputs), "file": file, "line": line,
            "text": self._text(box),
        }  # fmt: skip
        if self.devices:
            made["device"] = next((self.devices[n] for n in box.nodes if n in self.devices), None)
        return made

    def _text(self, box: _Box) -> list[str]:
        if box.kind == "input":
            return []
        lines = [self._describe(n) for n in box.nodes if box.kind != "kernel" or n.op.name not in _MOVES]
        for node in box.nodes:
            if hasattr(node.op, "graphs"):  # a region: what happens inside
                for part in node.op.graphs():
                    lines += [f"{part.name or 'body'}:", *("  " + line for line in str(part).splitlines())]
        return lines

    def _describe(self, node: Node) -> str:
        made = ", ".join(f"{self.names.get(v, '%?')}: {v.type!r}" for v in node.outputs)
        operands = ", ".join(self.input_names.get(v) or self.names.get(v, "%?") for v in node.inputs)
        place = f" on {node.device}" if node.device is not None else ""
        return f"{made} = {node.op.name}({operands}){place}  {_room(node.outputs)}"


def _edges(boxes: list[_Box], box_of: dict[Node, int]) -> dict[tuple[int, int], list[Value]]:
    """Between which boxes values go, seen through nodes that no box holds (movements that are views, inlined constants)."""
    edges: dict[tuple[int, int], list[Value]] = {}
    for number, box in enumerate(boxes):
        own, seen = set(box.nodes), set()
        stack = [v for node in box.nodes for v in node.inputs]
        while stack:
            v = stack.pop()
            if v in seen or v.node in own:
                continue
            seen.add(v)
            source = box_of.get(v.node)
            if source is None:
                stack.extend(v.node.inputs)
            elif source != number:
                edges.setdefault((source, number), []).append(v)
    return edges


def _cost(node: Node) -> float:
    """Operations and bytes, as the search for pipelines counts them; 0 where sizes are not known."""
    if any(_unknown(v) for v in (*node.inputs, *node.outputs)) or not node.outputs:
        return 0.0
    return float(work_of(node))


def _unknown(value: Value) -> bool:
    return any(isinstance(d, Sym) and not d.symbols.are_measured for d in value.shape)


def _size(value: Value) -> int:
    """Bytes; 0 where sizes are not known."""
    if _unknown(value):
        return 0
    count = value.dtype.itemsize
    for d in value.shape:
        count *= hint(d)
    return count


def _room(values) -> str:
    """The memory that values take, in words."""
    return "size unknown" if any(_unknown(v) for v in values) else show_bytes(sum(map(_size, values)))


def show_bytes(n: int) -> str:
    """1536 -> "1.5 KB"."""
    for unit in ("B", "KB", "MB", "GB"):
        if n < 1024 or unit == "GB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    raise AssertionError
