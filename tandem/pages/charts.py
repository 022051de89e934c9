"""Lines on a page: SVG in HTML that needs nothing else.

    {"title": ..., "figures": [{"title": ..., "x": ..., "y": ..., "series": {name: [[x, y], ...]}}], "text": ...}

is what a program that measures writes (benchmarks/cluster_servers.py --save), and `tandem view` makes a page of.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

_COLORS = ("#2563a8", "#c4551a", "#3c8a3c", "#8a3c7a")
_STYLE = (
    "text { font: 11px system-ui, sans-serif; } .t { font-weight: 600; } path { fill: none; stroke-width: 1.8; } "
    ".axis { stroke: #777; stroke-width: 1; }"
)
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 420, 240, 56, 34


def chart(title: str, x: str, y: str, series: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Series of points (x, y) by name, with axes from zero. x, y: what the axes are."""
    x_name, y_name, series = x, y, {name: dict(points) for name, points in series.items()}
    xs = [x for points in series.values() for x in points]
    ys = [y for points in series.values() for y in points.values()]
    right, top = max(xs, default=0) or 1.0, 1.1 * max(ys, default=0) or 1.0
    place = lambda x, y: (
        _LEFT + x / right * (_WIDTH - _LEFT - 12),
        _HEIGHT - _BOTTOM - y / top * (_HEIGHT - _BOTTOM - 28),
    )
    parts = [f'<text x="{_LEFT}" y="14" class="t">{html.escape(title)}</text>']
    x0, y0 = place(0, 0)
    parts.append(f'<path d="M{x0},{place(0, top)[1]} L{x0},{y0} L{place(right, 0)[0]},{y0}" class="axis"/>')
    for x in sorted(set(xs)):
        parts.append(f'<text x="{place(x, 0)[0]:.0f}" y="{y0 + 14:.0f}" text-anchor="middle">{x:g}</text>')
    for k in range(5):
        y = top * k / 4
        parts.append(f'<text x="{x0 - 5}" y="{place(0, y)[1] + 4:.0f}" text-anchor="end">{y:.3g}</text>')
    for k, (name, points) in enumerate(series.items()):
        color = _COLORS[k % len(_COLORS)]
        if not points:
            continue
        line = " L".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in sorted(points.items()))
        parts.append(f'<path d="M{line}" style="stroke:{color}"/>')
        parts += [
            '<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"/>'.format(*place(x, y), color) for x, y in points.items()
        ]
        parts.append(f'<text x="{_LEFT + 8}" y="{30 + 13 * k}" fill="{color}">{html.escape(name)}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 4}" text-anchor="middle">{html.escape(x_name)}</text>')
    parts.append(
        f'<text transform="translate(12,{_HEIGHT / 2}) rotate(-90)" text-anchor="middle">{html.escape(y_name)}</text>'
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" xmlns="http://www.w3.org/2000/svg"><style>{_STYLE}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>'
    )


def charts_page(found: dict) -> str:
    """The page of what the head of this file describes. Raises ValueError for what is something else."""
    try:
        title, text = str(found.get("title", "Figures")), str(found.get("text", ""))
        charts = [chart(str(f["title"]), str(f["x"]), str(f["y"]), f["series"]) for f in found["figures"]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"what describes the figures is not complete: {type(error).__name__} {error}") from None
    return f"""<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<style>
body {{ font: 13px system-ui, sans-serif; margin: 16px; }} pre {{ background: #f7f7f7; padding: 10px; }}
</style>
</head><body><h3>{html.escape(title)}</h3>{"".join(charts)}<pre>{html.escape(text)}</pre></body></html>
"""
