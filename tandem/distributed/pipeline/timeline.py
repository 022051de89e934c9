"""When each action of a schedule would run: a simulation of the ranks and the links between them, and pictures of it."""

from __future__ import annotations

import dataclasses
import json
from typing import NamedTuple

from tandem.distributed.pipeline.schedule import Action, Schedule
from tandem.distributed.pipeline.verify import verify

COLOURS = {"F": "#4c78a8", "B": "#f58518", "I": "#f58518", "W": "#54a24b"}


class Span(NamedTuple):
    """An action and the time that it takes."""

    action: Action
    begin: float
    end: float


@dataclasses.dataclass(frozen=True)
class Timeline:
    """What ranks do when; times are in the unit of what they were computed from."""

    schedule: Schedule
    rows: tuple[tuple[Span, ...], ...]

    @property
    def total(self) -> float:
        """From the first action's beginning to the last one's end."""
        return max(span.end for row in self.rows for span in row)

    @property
    def idle(self) -> float:
        """The part of all ranks' time that they wait: the bubble."""
        busy = sum(span.end - span.begin for row in self.rows for span in row)
        return 1.0 - busy / (self.total * len(self.rows))

    def picture(self, width: int = 100) -> str:
        """A line of text for each rank: F forward, B or I backward, W gradients of weights, dots where it waits.

        >>> pipeline = td.distributed.pipeline
        >>> print(pipeline.simulate(pipeline.gpipe(2, 2)).picture(9))
        rank 0: FF...BBBB
        rank 1: .FFBBBB..
        """
        lines = []
        for rank, row in enumerate(self.rows):
            line = ["."] * width
            for span in row:
                first = round(span.begin / self.total * width)
                last = round(span.end / self.total * width)
                line[first : max(last, first + 1)] = span.action.kind * max(last - first, 1)
            lines.append(f"rank {rank}: {''.join(line[:width])}")
        return "\n".join(lines)

    def svg(self, width: int = 900, height: int = 28) -> str:
        """A picture for pages: a row for each rank, a box for each action with the number of its micro-batch."""
        left, boxes = 60, []
        for rank, row in enumerate(self.rows):
            y = rank * (height + 6) + 4
            boxes.append(f'<text x="4" y="{y + height * 0.65:.1f}" class="rank">rank {rank}</text>')
            for span in row:
                x = left + span.begin / self.total * (width - left)
                w = (span.end - span.begin) / self.total * (width - left)
                title = f"{span.action}: {span.begin:.4g} to {span.end:.4g}"
                boxes.append(
                    f'<g><title>{title}</title><rect x="{x:.2f}" y="{y}" width="{max(w - 0.5, 0.5):.2f}" height="{height}"'
                    f' rx="2" fill="{COLOURS[span.action.kind]}" opacity="{0.75 if span.action.kind == "I" else 1}"/>'
                )
                if w > 14:
                    boxes.append(
                        f'<text x="{x + w / 2:.2f}" y="{y + height * 0.65:.1f}" class="micro">{span.action.micro}</text>'
                    )
                boxes.append("</g>")
        style = "text{font:11px sans-serif}.micro{fill:#fff;text-anchor:middle}.rank{fill:currentColor}"
        size = f'viewBox="0 0 {width} {len(self.rows) * (height + 6) + 8}" width="100%"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>{"".join(boxes)}</svg>'

    def _repr_html_(self) -> str:
        return self.svg()

    def perfetto(self) -> str:
        """A trace for ui.perfetto.dev (the events of Chrome's tracing as JSON), with times taken as seconds."""
        events = []
        for rank, row in enumerate(self.rows):
            events.append({"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}})
            for a, begin, end in row:
                name = f"{a.kind} stage {a.stage} micro-batch {a.micro}"
                events.append(
                    {"ph": "X", "pid": rank, "tid": 0, "name": name, "ts": begin * 1e6, "dur": (end - begin) * 1e6}
                )
        return json.dumps({"traceEvents": events})


def simulate(schedule: Schedule, times=None, link=None) -> Timeline:
    """When each action runs, if it begins as soon as its rank is free and what it waits for has come.

    times: {"F": 1, "I": 1, "W": 1} (B takes I + W unless it is given), or a function of an action
    link: seconds of a message, or a function of the action that sends it and the rank that gets it; it overlaps with other actions

    >>> pipeline = td.distributed.pipeline
    >>> timeline = pipeline.simulate(pipeline.one_f_one_b(4, 12))
    >>> timeline.total, round(timeline.idle, 3)  # (p - 1) / (m + p - 1)
    (45.0, 0.2)
    """
    duration = _duration(times)
    delay = link if callable(link) else lambda action, rank: link or 0.0
    end: dict[Action, float] = {}
    rows: list[list[Span]] = [[] for _ in schedule.actions]
    place = [0] * schedule.ranks
    left = sum(map(len, schedule.actions))
    while left:
        before = left
        for rank, row in enumerate(schedule.actions):
            while place[rank] < len(row):
                action = row[place[rank]]
                waits = schedule.before(action)
                if any(a not in end for a in waits):
                    break
                free = rows[rank][-1].end if rows[rank] else 0.0
                arrivals = (end[a] + (delay(a, rank) if schedule.rank_of(a.stage) != rank else 0.0) for a in waits)
                begin = max(free, *arrivals) if waits else free
                end[action] = begin + duration(action)
                rows[rank].append(Span(action, begin, end[action]))
                place[rank] += 1
                left -= 1
        if left == before:
            verify(schedule)  # says what is wrong
    return Timeline(schedule, tuple(map(tuple, rows)))


def _duration(times):
    if callable(times):
        return times
    each = {"F": 1.0, "I": 1.0, "W": 1.0, **(times or {})}
    each.setdefault("B", each["I"] + each["W"])
    return lambda action: float(each[action.kind])
