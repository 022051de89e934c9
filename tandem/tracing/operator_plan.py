"""The plan of one call of an operator function: its results, and what runs backward of it."""

from __future__ import annotations

import threading
from typing import NamedTuple

from tandem._runtime import SavedFrom
from tandem.codegen.buffer import root_of
from tandem.codegen.schedule import Unfinished
from tandem.forks import compiling
from tandem.graph.ir import Graph, Value
from tandem.graph.symbolic import Sym
from tandem.program.request import Request, Source
from tandem.program.write import ProgramWriter

_finishing = threading.RLock()  # held inside of compiling() alone, so that it is free in a forked child
_SAVED_INPUT, _SAVED_OUTPUT, _SAVED_TEMPORARY = SavedFrom.Input.value, SavedFrom.Output.value, SavedFrom.Temporary.value


class CapturedPlan(NamedTuple):
    """What a program that contains this plan's call needs to know of it (tandem/tracing/program.py)."""

    name: str
    digest: str | None  # what it was made from (digest.py)
    graph: Graph
    positions: list[int]
    temporaries: dict[int, Value]  # plan value -> Value, for what is saved besides inputs and outputs
    device: int
    arguments: list[tuple]  # [(name, description, its position among the operands)], for fn.explain()
    over_devices: bool = False  # whether it runs on others besides
    whole: bool = False  # many operators, as of a function of the user's: Role.whole


def named_arguments(parameters, spec) -> list[tuple]:
    """What a call was given, argument by argument."""
    named, position = [], 0
    for p in parameters:
        if p.kind in ("tensors", "ints") and spec[position].kind == "count":
            count = 1 + spec[position].value
        else:
            count = 2 if p.kind == "generator" else 1
        named += [(p.name, spec[i], i) for i in range(position, position + count)]
        position += count
    return named


class OperatorWriter(ProgramWriter):
    """A plan with results that may be views of arguments, and values that backward needs."""

    def __init__(self, request: Request, source: Source, schedule, builder, traced, split):
        super().__init__(request, source, schedule, builder)
        self.traced = traced
        self.split = split

    def _kept(self) -> list:
        saved = [v for v in self.source.saved if v in self.schedule.buffer_of]
        return [*self.graph.outputs[self.source.writes :], *saved]

    def write(self) -> tuple:
        """Gives what a record needs: ([(kind, index, position of what it copies)], slots of sizes)."""
        if isinstance(self.schedule, Unfinished):
            self.write_place()
            self._guards()
            self._outputs()
        else:
            super().write()
        links = self._saved() if self.split is not None else ()
        if isinstance(self.traced.rng_advance, Sym) or self.traced.rng_advance:
            self.builder.set_rng_advance(self.slot(self.graph.symbols.resolve(self.traced.rng_advance)))
        if isinstance(self.schedule, Unfinished):
            self.builder.write_later(self._write_rest)
            self._write_to(None)  # the plan holds on to this, so this must not hold on to the plan
        return links

    def _write_to(self, builder):
        self.builder = self.slot.builder = builder

    def _write_rest(self, builder):
        """The instructions, when the plan first runs by itself: Note [Unwritten plans] in src/plan/plan.h."""
        with compiling(), _finishing:
            if not isinstance(self.schedule, Unfinished):
                return  # another thread was quicker
            schedule = self.schedule.finish()
            made = builder.continued()
            self._write_to(made)
            self.schedule = schedule
            self.write_instructions(self._kept())
            builder.take(made)
            self._write_to(None)

    def _outputs(self):
        builder, writes = self.builder, self.source.writes
        builder.set_returns_tuple(self.traced.is_tuple)
        for k, written in enumerate(self.graph.inputs[:writes]):
            builder.output(self.value(self.schedule.buffer_of[written]), k, -1, self._differentiable(k))
        position_of = self.traced.position_of
        numbers = {position_of[v] for v in self.traced.numbers}
        for i, v in list(enumerate(self.graph.outputs))[writes:]:
            buffer = self.schedule.buffer_of[v]
            root = root_of(buffer)
            same = view_of = -1
            if v.node.op.is_input and self.positions[v.node.op.position] not in numbers:
                same = self.positions[v.node.op.position]
            elif root.kind == "input":
                view_of = self.positions[root.position]
            builder.output(self.value(buffer), same, view_of, self._differentiable(i))

    def _differentiable(self, i: int) -> bool:
        return self.split is not None and self.split.differentiable[i]

    def _saved(self) -> tuple:
        positions = dict(zip(self.graph.inputs, self.positions, strict=True))
        outputs = {v: i for i, v in reversed(list(enumerate(self.graph.outputs)))}
        saved = []
        for v, traced in zip(self.source.saved, self.split.saved, strict=True):
            if v in positions:
                saved.append((_SAVED_INPUT, positions[v], -1))
            elif v in outputs:
                saved.append((_SAVED_OUTPUT, outputs[v], -1))
            else:
                copied = self.split.copies.get(traced)
                at = -1 if copied is None else positions[copied]
                saved.append((_SAVED_TEMPORARY, self.value(self.schedule.buffer_of[v]), at))
        symbols = self.graph.symbols
        return saved, [self.slot(symbols._make({(("sym", i),): 1})) for i in self.split.sizes]


def attach_backward(builder, links: tuple, traced, split, functions: dict):
    """What a record of the call runs: operator functions of gradients and saved values."""
    saved, sizes = links
    at = traced.position_of
    numbers = [at[v] for v in split.numbers]
    builder.backward([at[v] for v in traced.wanted], saved, sizes, numbers, functions["first"], functions["twice"])
    if split.lazy is not None:
        builder.lazy_backward(functions["lazy"], split.summands)


def temporaries_of(links: tuple, split) -> dict[int, Value]:
    if split is None:
        return {}
    return {
        index: v for (kind, index, _), v in zip(links[0], split.saved, strict=True) if kind == _SAVED_TEMPORARY
    }  # fmt: skip
