"""A plan as a page: one HTML text that needs nothing else."""

from __future__ import annotations

import html

from tandem.distributed.automatic.decisions import letters

_STYLE = """
body { font: 13px system-ui, sans-serif; margin: 16px; max-width: 1100px; } table { border-collapse: collapse; margin: 8px 0 }
td, th { padding: 3px 10px; text-align: right; border-bottom: 1px solid #ddd } td:first-child, th:first-child { text-align: left }
tr.this { font-weight: 600; background: #eef6ea } .ranks { display: flex; gap: 14px; flex-wrap: wrap }
.stage { border: 1px solid #b9c0c9; border-radius: 6px; padding: 8px 12px; background: #e8f1fb } code { font-size: 11px }
td.op { font-family: ui-monospace, monospace }
"""


def render(plan) -> str:
    parts = [
        f"<h3>{html.escape(plan._headline())}</h3>", _stages(plan), f"<h3>When</h3>{plan.timeline.svg()}",
        f"<h3>Alternatives</h3>{_alternatives(plan)}", f"<h3>Operators</h3>{_operators(plan)}",
    ]  # fmt: skip
    return (
        f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>parallel plan</title><style>{_STYLE}</style></head>'
        f"<body>\n{chr(10).join(parts)}\n</body></html>\n"
    )


def _stages(plan) -> str:
    boxes = []
    for number, s in enumerate(plan.stages):
        ranks = ", ".join(map(str, s.place.ranks))
        lines = [
            f"<b>stage {number}</b>: ranks {ranks} as {s.place.shape}",
            f"{len(s.solution.strategies)} operators, {len(s.step.weights)} parameters",
            f"forward {s.times.forward * 1e3:.3g} ms, backward {(s.times.inputs + s.times.weights) * 1e3:.3g} ms",
            f"once a step {s.times.once * 1e3:.3g} ms{', recomputes' if s.recompute else ''}",
        ]
        boxes.append(f'<div class="stage">{"<br>".join(lines)}</div>')
    return f'<div class="ranks">{"".join(boxes)}</div>'


def _alternatives(plan) -> str:
    rows = ["<tr><th></th><th>ms a step</th><th>bytes a rank</th><th>idle</th><th>MB a rank</th></tr>"]
    for name, a in sorted(plan.alternatives().items(), key=lambda item: item[1].seconds):
        mark = ' class="this"' if name == "this plan" else ""
        cells = f"{a.seconds * 1e3:.3g}", f"{a.bytes:,}", f"{a.idle:.0%}", f"{a.memory / 2**20:.1f}"
        rows.append(f"<tr{mark}><td>{name}</td>{''.join(f'<td>{c}</td>' for c in cells)}</tr>")
    return f"<table>{''.join(rows)}</table>"


def _operators(plan) -> str:
    rows = [
        "<tr><th>operator</th><th>stage</th><th>operands</th><th>results</th><th>moves</th><th>µs</th><th>where</th></tr>"
    ]
    for line in plan.lines():
        operands, results = (", ".join(map(letters, ps)) for ps in (line.inputs, line.outputs))
        moved = ", ".join(f"{name} {n:,} B" for name, n in line.moved)
        cells = str(line.stage), operands, results, moved, f"{line.seconds * 1e6:.1f}", html.escape(line.source)
        rows.append(f'<tr><td class="op">{line.op}</td>{"".join(f"<td>{c}</td>" for c in cells)}</tr>')
    return f"<table>{''.join(rows)}</table>"
