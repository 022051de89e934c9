"""What happened in a run, as numbers: by step and by epoch, and where the time went."""

from __future__ import annotations

import json


class History:
    """steps: [{"step", "loss", "lr"}], epochs: [{"epoch", "train_loss", ...}], seconds: {phase: time}"""

    def __init__(self):
        self.steps: list[dict] = []
        self.epochs: list[dict] = []
        self.seconds: dict[str, float] = {}
        self.stopped: str | None = None  # why it ended before its last epoch

    def spend(self, phase: str, seconds: float):
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def best(self, name: str, largest: bool = False) -> dict | None:
        """The epoch with the least (or largest) value of a metric."""
        known = [e for e in self.epochs if name in e]
        return (max if largest else min)(known, key=lambda e: e[name]) if known else None

    def state_dict(self) -> dict:
        return {"steps": self.steps, "epochs": self.epochs, "seconds": self.seconds, "stopped": self.stopped}

    def load_state_dict(self, state: dict):
        self.steps, self.epochs = list(state["steps"]), list(state["epochs"])
        self.seconds, self.stopped = dict(state["seconds"]), None

    def save(self, path):
        with open(path, "w") as file:
            json.dump(self.state_dict(), file)

    @classmethod
    def load(cls, path) -> History:
        made = cls()
        with open(path) as file:
            made.load_state_dict(json.load(file))
        return made
