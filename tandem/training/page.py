"""The page of a run: loss curves, the dataflow graph and where the time went, in one HTML file that needs nothing else."""

from __future__ import annotations

import html

from tandem import files
from tandem.training.history import History

_COLOURS = 6  # of lines, in style below; then they begin again, dashed
_DASHES = ("", "7 5", "2 4")  # of runs that are compared: lines that lie on each other stay visible
_SMOOTH = 100  # points from which a line is shown smoothed, with the points pale behind it

_STYLE = """
:root{color-scheme:light dark;--back:#fff;--text:#1f2937;--quiet:#6b7280;--line:#e5e7eb;--panel:#f9fafb;
--c0:#2563eb;--c1:#dc2626;--c2:#059669;--c3:#d97706;--c4:#7c3aed;--c5:#0891b2;--warn:#fef3c7;--bad:#fee2e2}
@media(prefers-color-scheme:dark){:root{--back:#0f1521;--text:#e5e9f0;--quiet:#93a0b4;--line:#2b3648;--panel:#151d2b;
--c0:#7aa7ff;--c1:#ff8a80;--c2:#5eead4;--c3:#fbbf24;--c4:#c4a7ff;--c5:#67d8ef;--warn:#42330a;--bad:#471a1a}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:0 auto;padding:1.5em 1em 4em;
color:var(--text);background:var(--back)}
h1{font-size:1.5em}h2{font-size:1.15em;margin:2em 0 .4em}.scroll{overflow-x:auto}
table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right}
td:first-child,th:first-child{text-align:left}th{border-bottom:1px solid var(--line)}tr:nth-child(even){background:var(--panel)}
.chart{min-width:560px;width:100%;height:auto;display:block}
.chart text{font:12px system-ui,sans-serif;fill:var(--quiet)}.chart line{stroke:var(--line)}
.chart polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}.chart .pale{stroke-width:1;opacity:.25}
.legend{display:flex;flex-wrap:wrap;gap:.2em 1.2em;margin:.2em 0}
.legend label{cursor:pointer;display:flex;gap:.4em;align-items:center}
.legend svg{width:26px;height:10px}.legend polyline{stroke-width:2.5;fill:none}
iframe{width:100%;height:640px;border:1px solid var(--line);border-radius:6px}
.stopped,.failed{padding:.4em .8em;border-left:4px solid #d97706;background:var(--warn)}
.failed{border-color:#dc2626;background:var(--bad)}
.bar{display:inline-block;height:.7em;background:var(--c0);margin-right:.5em;border-radius:2px}
.digits{display:flex;flex-wrap:wrap;gap:10px}.digits figure{margin:0;text-align:center}
.digits svg{width:56px;height:56px;border-radius:5px;display:block}.digits figcaption{font-size:.85em;color:var(--quiet)}
.digits .wrong figcaption{color:var(--c1);font-weight:600}
"""
_SCRIPT = """
document.querySelectorAll(".legend input").forEach(box => box.addEventListener("change", () =>
  box.closest("section").querySelectorAll(`.s${box.dataset.k}`).forEach(e => e.style.display = box.checked ? "" : "none")));
"""


def _line_style(k: int, dash: str) -> str:
    return f"stroke:var(--c{k % _COLOURS})" + (f";stroke-dasharray:{dash}" if dash else "")


def curves(
    series: dict[str, list[tuple[float, float]]],
    width: int = 920,
    height: int = 280,
    title: str = "",
    dashes: dict | None = None,
) -> str:
    """Lines as SVG, with a legend that hides and shows them: {name: [(x, y), ...]}.

    Long ones are thinned out to the minimum and maximum of each column of pixels, and smoothed on top. dashes: by name.
    """
    series = {
        name: [p for p in points if p[1] == p[1] and abs(p[1]) != float("inf")] for name, points in series.items()
    }
    series = {name: points for name, points in series.items() if points}
    if not series:
        return "<p>nothing was measured</p>"
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    left, right, top, bottom = 60, 10, 12, 24
    x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)
    sx = (width - left - right) / ((x1 - x0) or 1)
    sy = (height - top - bottom) / ((y1 - y0) or 1)
    place = lambda points: [(left + (x - x0) * sx, height - bottom - (y - y0) * sy) for x, y in points]
    text = lambda points: " ".join(f"{x:.1f},{y:.1f}" for x, y in _thin(place(points)))
    parts = [f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(title)}">']
    for i in range(5):
        y = y0 + (y1 - y0) * i / 4
        at = height - bottom - (y - y0) * sy
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{at:.1f}" y2="{at:.1f}"/>'
                     f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{y:.3g}</text>')  # fmt: skip
    legend = []
    for k, (name, points) in enumerate(series.items()):
        style = _line_style(k, (dashes or {}).get(name, ""))
        shown = points
        if len(points) >= _SMOOTH:
            parts.append(f'<polyline class="pale s{k}" style="{_line_style(k, "")}" points="{text(points)}"/>')
            shown = _smooth(points)
        parts.append(
            f'<polyline class="s{k}" style="{style}" points="{text(shown)}"><title>{html.escape(name)}</title></polyline>'
        )
        legend.append(
            f'<label><input type="checkbox" checked data-k="{k}"><svg viewBox="0 0 26 10"><polyline style="{style}" '
            f'points="0,5 26,5"/></svg>{html.escape(name)} <small>{points[-1][1]:.4g}</small></label>'
        )
    parts.append(f'<text x="{left}" y="{height - 6}">{x0:g}</text>'
                 f'<text x="{width - right}" y="{height - 6}" text-anchor="end">{x1:g}</text></svg>')  # fmt: skip
    return f'<section><div class="legend">{"".join(legend)}</div><div class="scroll">{"".join(parts)}</div></section>'


def _smooth(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """A moving average over a fiftieth of the line."""
    keep, mean, weight, made = 1 - 50 / len(points) / 2, 0.0, 0.0, []
    keep = max(keep, 0.8)
    for x, y in points:
        mean, weight = keep * mean + (1 - keep) * y, keep * weight + (1 - keep)
        made.append((x, mean / weight))
    return made


def pictures(images, labels, guesses) -> str:
    """Small grey images, with what they show and what they were read as; mistakes stand out."""
    made = []
    for image, label, guess in zip(images, labels, guesses, strict=True):
        rows, most = image.tolist(), float(image.max()) or 1.0
        cells = "".join(
            f'<rect x="{x}" y="{y}" width="1.02" height="1.02" fill="rgb({(v := round(255 * value / most))},{v},{v})"/>'
            for y, row in enumerate(rows) for x, value in enumerate(row)
        )  # fmt: skip
        wrong = "" if label == guess else ' class="wrong"'
        told = f"{guess}" if label == guess else f"{guess}, is {label}"
        made.append(f'<figure{wrong}><svg viewBox="0 0 {len(rows[0])} {len(rows)}" role="img" aria-label="a {label}">{cells}</svg>'
                    f"<figcaption>{told}</figcaption></figure>")  # fmt: skip
    return f'<div class="digits">{"".join(made)}</div>'


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
    return f'<div class="scroll"><table><tr><th>what</th><th>time</th><th></th></tr>{rows}</table></div>'


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
    dash = {n: _DASHES[i % len(_DASHES)] for i, n in enumerate(runs)}
    styles = {prefix(n, k.replace("_", " ")): dash[n] for n in runs for k in ("loss", *names)}
    draw = lambda lines, what: curves(lines, title=what, dashes=styles)
    parts = [f"<h1>{html.escape(title)}</h1>", notes, *ends, "<h2>Loss by step</h2>", draw(steps, "loss by step")]
    for group, wanted in (("Losses by epoch", [n for n in names if n.endswith("loss")]),
                          ("Metrics by epoch", [n for n in names if not n.endswith("loss")])):  # fmt: skip
        if wanted:
            parts.append(f"<h2>{group}</h2>")
            lines = {
                prefix(n, k.replace("_", " ")): [(e["epoch"], e[k]) for e in h.epochs if k in e]
                for n, h in runs.items() for k in wanted
            }  # fmt: skip
            parts.append(draw(lines, group.lower()))
    for n, h in runs.items():
        parts += [f"<h2>Where the time went{': ' + html.escape(n) if n else ''}</h2>", _times(h.seconds)]
    if compiled is not None and compiled._report:
        graph = graph_part(compiled)
    parts.append(graph)
    head = '<meta charset=utf-8><meta name="viewport" content="width=device-width, initial-scale=1">'
    text = (
        f'<!doctype html><html lang="en">{head}<title>{html.escape(title)}</title><style>{_STYLE}</style>'
        + "\n".join(parts) + f"<script>{_SCRIPT}</script>"
    )  # fmt: skip
    files.write(path, text, durable=False)
    return str(path)
