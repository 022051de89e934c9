"""The line that shows how training goes: loss, throughput, time left. Through rich; plain lines where there is no terminal."""

from __future__ import annotations

import sys
import time


class Progress:
    def __init__(self, shown: bool):
        self.shown = shown
        self.live = shown and sys.stderr.isatty()
        self._bar = None

    def __enter__(self):
        if self.live:
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = [
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[now]}"),
                TimeRemainingColumn(),
            ]
            self._bar = Bar(*columns, transient=True)
            self._bar.start()
        return self

    def __exit__(self, *exc):
        if self._bar is not None:
            self._bar.stop()

    def start(self, title: str, count: int | None):
        self._began, self._examples = time.perf_counter(), 0
        if self._bar is not None:
            for task in list(self._bar.task_ids):
                self._bar.remove_task(task)
            self._task = self._bar.add_task(title, total=count, now="")

    def advance(self, loss: float, examples: int):
        self._examples += examples
        if self._bar is not None:
            rate = self._examples / max(time.perf_counter() - self._began, 1e-9)
            self._bar.update(self._task, advance=1, now=f"loss {loss:.4f}  {rate:,.0f}/s")

    def epoch(self, epoch: int, epochs: int, values: dict):
        if not self.shown:
            return
        rate = self._examples / max(time.perf_counter() - self._began, 1e-9)
        text = "  ".join(f"{k} {v:.4g}" for k, v in values.items())
        line = f"epoch {epoch}/{epochs}  {text}  {rate:,.0f} examples/s"
        if self._bar is not None:
            self._bar.console.print(line, highlight=False)
        else:
            print(line, flush=True)
