"""A picture of a graph: one HTML page that needs nothing else, with an SVG of the steps that run and the values between them.

Every box is a step: a kernel with the operators that are fused into it, or a call into the library. Without a schedule every node
is a box of its own. Rows are depths: a box stands below everything that it needs.
"""

from __future__ import annotations

import html

from tandem.graph.ir import Graph, Node, Value
from tandem.graph.symbolic import Sym, hint

_LINE, _PAD, _WIDTH, _GAP_X, _GAP_Y = 15, 8, 300, 24, 46
_COLORS = {"kernel": "#e8f1fb", "library": "#fdf0e1", "input": "#eef6ea", "node": "#f4f4f4"}
_DEVICES = ("#cfe3f7", "#fbd9b5", "#cdeac0", "#f3c9d3", "#dccff0", "#f6efb5", "#c4e9e4", "#e3d5c5")
_MOVES = {"reshape", "permute", "expand", "slice", "constant", "size"}


class _Box:
    def __init__(self, kind: str, title: str, nodes: list[Node]):
        self.kind = kind
        self.title = title
        self.nodes = nodes
        self.depth = 0
        self.x = self.y = 0.0
        self.lines: list[str] = []

    @property
    def height(self) -> float:
        return _LINE * (len(self.lines) + 1) + 2 * _PAD


def render(
    graph: Graph, schedule=None, title: str = "", peak: int | None = None, devices: dict[Node, str] | None = None
) -> str:
    """devices: where nodes run, by which boxes are coloured then."""
    names = {v: f"%{i}" for i, v in enumerate(v for n in graph.nodes for v in n.outputs)}
    boxes = _boxes(graph, schedule)
    box_of: dict[Node, _Box] = {}
    for box in boxes:
        for node in box.nodes:
            box_of.setdefault(node, box)
    for box in boxes:
        box.lines = [_describe(node, names) for node in box.nodes if box.kind != "kernel" or node.op.name not in _MOVES]
        for node in box.nodes:
            if hasattr(node.op, "graphs"):  # a region: what happens inside, as text
                for part in node.op.graphs():
                    box.lines += [f"{part.name or 'body'}:", *("  " + line for line in str(part).splitlines())]
    edges = _edges(boxes, box_of)
    waits = {(box_of[n], box): () for box in boxes for node in box.nodes for n in node.control if n in box_of}
    waits = {(a, b): () for a, b in waits if a is not b}
    _place(boxes, {**waits, **edges})
    width = max((b.x + _WIDTH for b in boxes), default=0) + _GAP_X
    height = max((b.y + b.height for b in boxes), default=0) + _GAP_Y
    parts = [_edge(a, b, values, names) for (a, b), values in edges.items()]
    parts += [_edge(a, b, [], names, waits=True) for a, b in waits if (a, b) not in edges]
    colors = {d: _DEVICES[i % len(_DEVICES)] for i, d in enumerate(dict.fromkeys((devices or {}).values()))}
    place = lambda box: next((devices[n] for n in box.nodes if n in devices), None) if devices else None
    parts += [_svg(box, colors.get(place(box))) for box in boxes]
    facts = [f"{len(graph.nodes)} nodes", f"{len(boxes) - sum(b.kind == 'input' for b in boxes)} steps"]
    if peak is not None:
        facts.append(f"peak {show_bytes(peak)} besides inputs")
    legend = "".join(f'<span style="background:{c}">&nbsp;{html.escape(d)}&nbsp;</span> ' for d, c in colors.items())
    code = html.escape(str(graph))
    return f"""<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>{html.escape(title or graph.name or "graph")}</title>
<style>
body {{ font: 13px system-ui, sans-serif; margin: 16px; }} svg text {{ font: 11px ui-monospace, monospace; }}
svg .t {{ font-weight: 600; }} path {{ fill: none; stroke: #8a8f98; }} path:hover {{ stroke: #c0392b; stroke-width: 2.5; }}
rect {{ stroke: #b9c0c9; rx: 5; }} pre {{ background: #f7f7f7; padding: 10px; overflow-x: auto; }}
</style></head><body>
<h3>{html.escape(title or graph.name or "graph")}: {", ".join(facts)}</h3>{legend}
<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}">
{chr(10).join(parts)}
</svg>
<h3>As text</h3><pre>{code}</pre>
</body></html>
"""


def _boxes(graph: Graph, schedule) -> list[_Box]:
    boxes = [_Box("input", "inputs", [n for n in graph.nodes if n.op.name == "input"])]
    if schedule is None:
        return boxes + [
            _Box("node", n.op.name, [n]) for n in graph.nodes if n.op.name not in ("input", "constant", "size")
        ]
    known = set(graph.nodes)
    for i, step in enumerate(schedule.steps):
        library = hasattr(step, "routine")
        nodes = list(step.nodes) if hasattr(step, "nodes") else [step.node]
        nodes = [n for n in nodes if n in known] or nodes
        label = step.routine if library else step.kernel.name
        if hasattr(step, "follows"):
            label += f" then {step.follows.kernel.name}"
        boxes.append(_Box("library" if library else "kernel", f"{i}: {label}", list(dict.fromkeys(nodes))))
    return boxes


def _describe(node: Node, names: dict[Value, str]) -> str:
    made = ", ".join(f"{names.get(v, '%?')}: {v.type!r}" for v in node.outputs)
    text = f"{made} = {node.op.name}({', '.join(names.get(v, '%?') for v in node.inputs)})"
    if node.op.name == "input":
        text = made
    if node.device is not None:
        text += f" on {node.device}"
    return f"{text}  {_room(node.outputs)}" + (f"  {node.source}" if node.source else "")


def _room(values) -> str:
    """The memory that values take, in words."""
    total = 0
    for value in values:
        if any(isinstance(d, Sym) and not d.symbols.are_measured for d in value.shape):
            return "size unknown"
        count = value.dtype.itemsize
        for d in value.shape:
            count *= hint(d)
        total += count
    return show_bytes(total)


def show_bytes(n: int) -> str:
    """1536 -> "1.5 KB"."""
    for unit in ("B", "KB", "MB", "GB"):
        if n < 1024 or unit == "GB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    raise AssertionError


def _edges(boxes: list[_Box], box_of: dict[Node, _Box]) -> dict[tuple[_Box, _Box], list[Value]]:
    """Between which boxes values go, seen through nodes that no box holds (movements that are views, inlined constants)."""
    edges: dict[tuple[_Box, _Box], list[Value]] = {}
    for box in boxes:
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
            elif source is not box:
                edges.setdefault((source, box), []).append(v)
    return edges


def _place(boxes: list[_Box], edges: dict[tuple[_Box, _Box], list[Value]]):
    above: dict[_Box, list[_Box]] = {}
    for a, b in edges:
        above.setdefault(b, []).append(a)
    position = {box: i for i, box in enumerate(boxes)}
    for box in boxes:  # in execution order, so what a box needs has its depth already
        box.depth = 1 + max((a.depth for a in above.get(box, ()) if position[a] < position[box]), default=-1)
    rows: dict[int, list[_Box]] = {}
    for box in boxes:
        rows.setdefault(box.depth, []).append(box)
    y = float(_PAD)
    for depth in sorted(rows):
        row = rows[depth]
        middle = lambda b: sum(a.x for a in above[b]) / len(above[b]) if above.get(b) else 0.0
        row.sort(key=middle)
        for i, box in enumerate(row):
            box.x, box.y = _PAD + i * (_WIDTH + _GAP_X), y
        y += max(b.height for b in row) + _GAP_Y


def _edge(a: _Box, b: _Box, values: list[Value], names: dict[Value, str], waits: bool = False) -> str:
    x0, y0, x1, y1 = a.x + _WIDTH / 2, a.y + a.height, b.x + _WIDTH / 2, b.y
    bend = max(24.0, (y1 - y0) / 2)
    label = html.escape(", ".join(f"{names[v]}: {v.type!r} ({_room([v])})" for v in values if v in names))
    if waits:
        label = f"{html.escape(b.title)} waits for {html.escape(a.title)}"
    dashes = ' stroke-dasharray="5 4"' if waits else ""
    return (f'<path{dashes} d="M{x0:.0f},{y0:.0f} C{x0:.0f},{y0 + bend:.0f} {x1:.0f},{y1 - bend:.0f} {x1:.0f},{y1:.0f}">'
            f"<title>{label}</title></path>")  # fmt: skip


def _svg(box: _Box, color: str | None = None) -> str:
    lines = [f'<g transform="translate({box.x:.0f},{box.y:.0f})"><rect width="{_WIDTH}" height="{box.height:.0f}" '
             f'fill="{color or _COLORS[box.kind]}"/>',
             f'<text class="t" x="{_PAD}" y="{_PAD + 11}">{html.escape(_clip(box.title))}</text>']  # fmt: skip
    for i, line in enumerate(box.lines):
        full = html.escape(line)
        lines.append(
            f'<text x="{_PAD}" y="{_PAD + 11 + _LINE * (i + 1)}"><title>{full}</title>{html.escape(_clip(line))}</text>'
        )
    return "".join(lines) + "</g>"


def _clip(text: str, most: int = 44) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
