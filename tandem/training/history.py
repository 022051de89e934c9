"""What happened in a run, as numbers: by step and by epoch, and where the time went."""

from __future__ import annotations

import json
import math
import time

from tandem import files


class History:
    """steps: [{"step", "loss", "lr"}], epochs: [{"epoch", "train_loss", ...}], seconds: {phase: time}"""

    name = "history.json"  # in the folder of a run

    def __init__(self):
        self.steps: list[dict] = []
        self.epochs: list[dict] = []
        self.seconds: dict[str, float] = {}
        self.stopped: str | None = None  # why it ended before its last epoch
        self.failed = False  # whether that is a failure: the loss is NaN
        self.ended = False  # a file of a run that goes on, or was killed, says no
        self._saved, self._took = 0.0, 0.0  # when, and how long it took

    def spend(self, phase: str, seconds: float):
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def best(self, name: str, largest: bool = False) -> dict | None:
        """The epoch with the least (or largest) value of a metric."""
        known = [e for e in self.epochs if name in e]
        return (max if largest else min)(known, key=lambda e: e[name]) if known else None

    def state_dict(self) -> dict:
        return {"steps": self.steps, "epochs": self.epochs, "seconds": self.seconds,
                "stopped": self.stopped, "failed": self.failed, "ended": self.ended}  # fmt: skip

    def load_state_dict(self, state: dict):
        self.steps, self.epochs = list(state["steps"]), list(state["epochs"])
        self.seconds, self.stopped, self.failed, self.ended = dict(state["seconds"]), None, False, False

    def save(self, path):
        """Writes it as JSON, which has no NaN and no infinities: these are null there. Readers never see half a file."""
        started = time.perf_counter()
        files.write(path, json.dumps(_plain(self.state_dict()), allow_nan=False), durable=False)
        self._saved = time.perf_counter()
        self._took = self._saved - started

    def save_sometimes(self, path):
        """Writes it if that was long ago, and takes little of the time: for those who look at a run that goes on."""
        if time.perf_counter() - self._saved > max(2.0, 50 * self._took):
            self.save(path)

    @classmethod
    def load(cls, path) -> History:
        made = cls()
        with open(path) as file:
            state = json.load(file)
        made.load_state_dict({**state, **{k: _numbers(state[k]) for k in ("steps", "epochs")}})
        made.stopped, made.failed, made.ended = state["stopped"], state.get("failed", False), state.get("ended", True)
        return made


def _plain(tree):
    if isinstance(tree, dict):
        return {k: _plain(v) for k, v in tree.items()}
    if isinstance(tree, list):
        return [_plain(v) for v in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def _numbers(rows: list[dict]) -> list[dict]:
    return [{k: math.nan if v is None else v for k, v in row.items()} for row in rows]
