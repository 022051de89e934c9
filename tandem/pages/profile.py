"""The page of a profile: what tandem/pages/profile.js draws."""

from __future__ import annotations

from tandem import pages

_MOST_STEPS = 150_000  # in the timeline; more would make a page that browsers are slow with
_MOST_POINTS = 4_000  # of memory


def render(profile) -> str:
    return pages.page("profile", data_of(profile), "profile.js", noscript=str(profile))


def data_of(profile) -> dict:
    """What the page shows, as JSON. Times are microseconds since the profile began."""
    steps = profile.steps
    left_out = max(len(steps) - _MOST_STEPS, 0)
    if left_out:
        steps = sorted(steps, key=lambda s: -s.duration)[:_MOST_STEPS]
    strings: dict[str, int] = {}
    number = lambda text: strings.setdefault(text, len(strings))
    tracks: dict[tuple, dict] = {}
    for step in sorted(steps, key=lambda s: (s.start, -s.duration)):
        where = (step.device, step.thread if step.device == "cpu" else step.stream)
        if where not in tracks:
            kind = "thread" if step.device == "cpu" else "stream"
            count = sum(device == step.device for device, _ in tracks)
            tracks[where] = {"name": f"{step.device} {kind} {count}", "steps": []}
        start = round((step.start - profile.start) / 1e3, 3)
        tracks[where]["steps"].append([
            start, round(step.duration / 1e3, 3), number(step.name), step.kind, number(step.op), number(step.line), step.bytes,
        ])  # fmt: skip
    return {
        "title": "profile", "facts": profile._summary(profile.rows()), "duration": (profile.end - profile.start) / 1e3,
        "tracks": list(tracks.values()), "strings": list(strings), "left_out": left_out, "memory": _memory(profile),
        "tables": {by: [_row(row) for row in profile.rows(by)] for by in ("op", "line", "kernel", "device")},
    }  # fmt: skip


def _row(row) -> list:
    mean = row.nanoseconds / row.steps
    return [row.name, row.nanoseconds / 1e3, 0, row.steps, mean / 1e3, row.slowest / 1e3, row.device, row.line]


def _memory(profile) -> list[dict]:
    """Per device [time, bytes] where that changes; of long profiles the most of each stretch."""
    found: dict[str, list] = {}
    for step in sorted(profile.steps, key=lambda s: s.start + s.duration):
        if step.kind == "range":
            continue
        points = found.setdefault(step.device, [])
        if not points or points[-1][1] != step.live:
            points.append([round((step.start + step.duration - profile.start) / 1e3, 3), step.live])
    made = []
    for device, points in found.items():
        size = -(-len(points) // _MOST_POINTS)
        kept = [max(points[i : i + size], key=lambda p: p[1]) for i in range(0, len(points), size)]
        made.append({"device": device, "points": kept})
    return made
