"""A table's rows on one server: made on demand, or all there from the start.

Note [Rows on demand]
A row has a number in the whole table and a slot here. On demand, slots are given out as rows are first looked up, and memory grows
by doubling; what a new row holds is a function of the seed, its number and the column alone, so that it is the same whoever asks
first and however many servers there are. Otherwise the slot follows from the number.
"""

from __future__ import annotations

import numpy as np

import tandem.ops as F
from tandem.autograd.modes import no_grad
from tandem.distributed.servers.shard import ROWS, Shard
from tandem.errors import IndexRangeError, OutOfMemoryError
from tandem.nn.parameter import Parameter
from tandem.tensors.constructors import asarray, zeros

_FIRST = 64  # slots


def fresh_rows(numbers: np.ndarray, width: int, seed: int, scale: float) -> np.ndarray:
    """Rows that no gradient has touched: uniform in [-scale, scale)."""
    with np.errstate(over="ignore"):
        x = numbers.astype(np.uint64)[:, None] * np.uint64(width) + np.arange(width, dtype=np.uint64)[None, :]
        x = x + np.uint64(seed) * np.uint64(0xD1342543DE82EF95) + np.uint64(0x9E3779B97F4A7C15)  # splitmix64
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return (((x >> np.uint64(40)).astype(np.float64) / 2.0**23 - 1.0) * scale).astype(np.float32)


class Rows(Shard):
    """spec: besides that of a Shard {"width", "seed", "scale", "servers", "server", "rows": all there are here, or None,
    "limit": bytes that rows and their state may take, or None}"""

    def __init__(self, spec: dict, tensors: list):
        self.slots: dict[int, int] = {}
        self.numbers: list[int] = []
        there = spec["rows"]
        first = [zeros(there if there is not None else 0, spec["width"])]
        super().__init__({**spec, "groups": [0]}, first)
        if there is not None:
            self.parameters[0] = self._replaced(first[0])  # untouched memory: what nobody looks up is never written
            self._check_limit(there)
        self.demand = there is None

    def _check_values(self, name: str, tensors: list):
        """Nobody brings values: the rows are made here."""

    def _replaced(self, values) -> Parameter:
        """A parameter of these values in place of the old one, for the optimiser too."""
        made, old = Parameter(values), self.parameters[0]
        state = self.optimizer.state.pop(old, None)
        if state is not None:
            self.optimizer.state[made] = state
        for group in self.optimizer.param_groups:
            group["params"] = [made if p is old else p for p in group["params"]]
        return made

    # -- rows

    def lookup(self, numbers, step: int, generation: int, timeout: float):
        """Rows of these numbers, once the version is `step`."""
        wanted = numbers.numpy()
        with self.changed:
            state, _ = self.pull(step, generation, timeout)
            if state is None:
                return None, zeros(0, self.spec["width"])
            slots = asarray(self._find(wanted))
            with no_grad():
                return state, F.index_select(self.parameters[0].detach(), 0, slots)

    def _values(self) -> list:
        return []

    def _find(self, numbers: np.ndarray) -> np.ndarray:
        if not self.demand:
            found = numbers // self.spec["servers"]
            if found.size and (found.min() < 0 or found.max() >= self.parameters[0].shape[0]):
                worst = int(numbers[np.argmax(np.abs(found))])
                raise IndexRangeError("lookup", f"row {worst} of a table without it")
            return found.astype(np.int64)
        slots = self.slots
        new = [n for n in numbers.tolist() if n not in slots]
        if new:
            self._create(sorted(set(new)))
        return np.fromiter((slots[n] for n in numbers.tolist()), dtype=np.int64, count=len(numbers))

    def _create(self, new: list[int]):
        begin, capacity = len(self.numbers), self.parameters[0].shape[0]
        if begin + len(new) > capacity:
            self._grow(begin + len(new))
        for n in new:
            self.slots[n] = len(self.numbers)
            self.numbers.append(n)
        made = fresh_rows(np.array(new), self.spec["width"], self.spec["seed"], self.spec["scale"])
        with no_grad():
            self.parameters[0].detach()[begin : begin + len(new)] = asarray(made)

    def _grow(self, needed: int):
        """Room for so many rows, and for twice as many as before unless the limit is nearer."""
        most = self._check_limit(needed)
        old = self.parameters[0]
        capacity = max(2 * old.shape[0], needed, _FIRST)
        capacity = capacity if most is None else min(capacity, most)
        with no_grad():
            self.parameters[0] = self._replaced(_joined(old.detach(), zeros(capacity - old.shape[0], old.shape[1])))
            state = self.optimizer.state.get(self.parameters[0], {})
            fresh = self._fresh_state(capacity - old.shape[0]) if state else {}
            for name, value in state.items():
                if getattr(value, "ndim", 0):
                    state[name] = _joined(value, fresh[name])

    def _fresh_state(self, rows: int) -> dict:
        """What the optimiser begins with for so many rows."""
        group = self.optimizer.param_groups[0]
        rule, _ = self.optimizer.sparse_rule(group)
        return self.optimizer.new_state(zeros(rows, self.spec["width"]), group, rule.state)

    def _check_limit(self, needed: int) -> int | None:
        """How many rows may be here, if there is a limit; an error where more are needed."""
        limit = self.spec.get("limit")
        if limit is None:
            return None
        tables = 1 + sum(1 for v in self._fresh_state(1).values() if getattr(v, "ndim", 0))
        row = 4 * self.spec["width"] * tables
        if needed * row > limit:
            raise OutOfMemoryError(
                "lookup", f"{needed:,} rows of this server would take {needed * row:,} B with the optimiser's state; its limit is "
                f"{limit:,} B", fix="use more servers, a smaller width, or fewer rows",
            )  # fmt: skip
        return limit // row

    # -- pushes

    def _gradients(self, kinds: list, tensors: list) -> list:
        if not tensors:
            return [None]
        numbers, values = tensors
        with self.changed:
            return [(asarray(self._find(numbers.numpy())), values)]

    # -- snapshots

    def state(self) -> dict:
        return super().state() | {"numbers": asarray(np.array(self.numbers, dtype=np.int64))}

    def restore(self, version: int, generation: int):
        with self.changed:
            if generation <= self.generation and self.version == version:
                return  # asked twice
            found = self._read(version)
            table = found["parameters"][0]
            if tuple(table.shape) != tuple(self.parameters[0].shape):
                self.parameters[0] = self._replaced(zeros(*table.shape))
            self.numbers = found["numbers"].tolist()
            self.slots = {n: i for i, n in enumerate(self.numbers)}
            super().restore(version, generation)

    def describe(self) -> dict:
        return super().describe() | {"rows": len(self.numbers) if self.demand else int(self.parameters[0].shape[0])}


def _joined(values, more):
    made = zeros(values.shape[0] + more.shape[0], *values.shape[1:], dtype=values.dtype)
    made[: values.shape[0]] = values
    if bool((more != 0).any()):  # memory of zeros that nobody touches is no memory
        made[values.shape[0] :] = more
    return made


KINDS = [ROWS]
