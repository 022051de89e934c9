"""The page of a run: loss curves, the dataflow graph and where the time went, in one HTML file that needs nothing else."""

from __future__ import annotations

import html

from tandem import files
from tandem.training.history import History

_COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2")

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#1f2937}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right}
td:first-child,th:first-child{text-align:left}th{border-bottom:1px solid #d1d5db}tr:nth-child(even){background:#f9fafb}
svg text{font:12px system-ui,sans-serif;fill:#6b7280}iframe{width:100%;height:600px;border:1px solid #d1d5db}
.stopped,.failed{padding:.4em .8em;border-left:4px solid #d97706;background:#fef3c7}.failed{border-color:#dc2626;background:#fee2e2}
.bar{display:inline-block;height:.7em;background:#2563eb;margin-right:.5em}
"""


def curves(series: dict[str, list[tuple[float, float]]], width: int = 920, height: int = 260, title: str = "") -> str:
    """Lines as SVG: {name: [(x, y), ...]}; long ones are thinned out to the minimum and maximum of each column of pixels."""
    series = {
        name: [p for p in points if p[1] == p[1] and abs(p[1]) != float("inf")] for name, points in series.items()
    }
    series = {name: points for name, points in series.items() if points}
    if not series:
        return "<p>nothing was measured</p>"
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    left, right, top, bottom = 60, 10, 24, 24
    x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)
    sx = (width - left - right) / ((x1 - x0) or 1)
    sy = (height - top - bottom) / ((y1 - y0) or 1)
    parts = [
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img"><text x="{left}" y="14">{html.escape(title)}</text>'
    ]
    for i in range(5):
        y = y0 + (y1 - y0) * i / 4
        at = height - bottom - (y - y0) * sy
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{at:.1f}" y2="{at:.1f}" stroke="#e5e7eb"/>'
                     f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{y:.3g}</text>')  # fmt: skip
    for k, (name, points) in enumerate(series.items()):
        colour = _COLOURS[k % len(_COLOURS)]
        thin = _thin([(left + (x - x0) * sx, height - bottom - (y - y0) * sy) for x, y in points])
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in thin)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{path}"/>')
        parts.append(f'<text x="{width - right - 4}" y="{top + 14 * k + 8}" text-anchor="end" style="fill:{colour}">'
                     f'{html.escape(name)}</text>')  # fmt: skip
    parts.append(f'<text x="{left}" y="{height - 6}">{x0:g}</text>'
                 f'<text x="{width - right}" y="{height - 6}" text-anchor="end">{x1:g}</text></svg>')  # fmt: skip
    return "".join(parts)


def _thin(points):
    if len(points) < 2000:
        return points
    columns: dict[int, list] = {}
    for p in points:
        columns.setdefault(int(p[0]), []).append(p)
    made = []
    for at in sorted(columns):
        low, high = min(columns[at], key=lambda p: p[1]), max(columns[at], key=lambda p: p[1])
        made += sorted({low, high})
    return made


def _times(seconds: dict[str, float]) -> str:
    total = sum(seconds.values()) or 1.0
    rows = "".join(
        f'<tr><td>{html.escape(name)}</td><td>{value:.2f} s</td><td style="text-align:left">'
        f'<span class="bar" style="width:{300 * value / total:.0f}px"></span>{100 * value / total:.0f}%</td></tr>'
        for name, value in sorted(seconds.items(), key=lambda item: -item[1])
    )
    return f"<table><tr><th>what</th><th>time</th><th></th></tr>{rows}</table>"


def _program(report: dict) -> str:
    """A compiled program: how long its making took, and which steps are estimated to cost most."""
    phases = ", ".join(f"{name} {1e3 * s:.0f} ms" for name, s in report["seconds"].items())
    return (
        f"<p>{report['calls']} operator calls became {report['steps']} steps; at its peak {report['memory']['peak'] / 1e6:.1f} MB. "
        f"Compiling: {html.escape(phases)}.</p>"
    )


GRAPH = "graph.html"  # in the folder of a run: the part of its page about the graph


def graph_part(compiled) -> str:
    """The part of a page that shows the latest program of a compiled function."""
    view = html.escape(compiled.graph().view(), quote=True)
    return (
        f"<h2>The dataflow graph of a training step</h2>{_program(compiled._report[-1])}"
        f'<iframe title="graph" srcdoc="{view}"></iframe>'
    )


def _how_it_ended(name: str, history: History) -> str:
    if history.stopped is not None:
        kind = "failed" if history.failed else "stopped"
        return f"<p class={kind}>{html.escape(name)} stopped: {html.escape(history.stopped)}</p>"
    if not history.ended:
        return (
            f"<p class=stopped>{html.escape(name)} has not ended: it goes on, or was killed. These are its numbers up to step "
            f"{history.steps[-1]['step'] if history.steps else 0}.</p>"
        )
    return ""


def write_page(
    path, history: History | dict[str, History], title: str = "A run", compiled=None, notes: str = "", graph: str = ""
) -> str:
    """Writes the page of one or several runs and gives its path.

    history: of one run, or {name: history} to compare. compiled: a compiled function, whose graph is shown; graph: the part of the
    page that shows it, made earlier. notes: HTML.
    """
    runs = history if isinstance(history, dict) else {"": history}
    prefix = lambda name, what: f"{name} {what}" if name else what
    steps = {prefix(n, "loss"): [(s["step"], s["loss"]) for s in h.steps] for n, h in runs.items()}
    names = sorted({k for h in runs.values() for e in h.epochs for k in e if k not in ("epoch", "lr")})
    ends = [_how_it_ended(n or "the run", h) for n, h in runs.items()]
    parts = [f"<h1>{html.escape(title)}</h1>", notes, *ends, "<h2>Loss by step</h2>", curves(steps, title="loss")]
    for group, wanted in (("Losses by epoch", [n for n in names if n.endswith("loss")]),
                          ("Metrics by epoch", [n for n in names if not n.endswith("loss")])):  # fmt: skip
        if wanted:
            parts.append(f"<h2>{group}</h2>")
            parts.append(curves({
                prefix(n, k.replace("_", " ")): [(e["epoch"], e[k]) for e in h.epochs if k in e]
                for n, h in runs.items() for k in wanted
            }))  # fmt: skip
    for n, h in runs.items():
        parts += [f"<h2>Where the time went{': ' + html.escape(n) if n else ''}</h2>", _times(h.seconds)]
    if compiled is not None and compiled._report:
        graph = graph_part(compiled)
    parts.append(graph)
    text = f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title><style>{_STYLE}</style>" + "\n".join(
        parts
    )
    files.write(path, text, durable=False)
    return str(path)
