"""What a rank does and holds during a step of a pipeline."""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as F
from tandem.distributed.collectives import irecv, isend
from tandem.distributed.pipeline.places import Block, Place, blocks
from tandem.distributed.pipeline.schedule import Action
from tandem.distributed.pipeline.stages import Stage
from tandem.distributed.sharding.layout import Placements
from tandem.distributed.sharding.parts import parts_of
from tandem.graph.ir import Value
from tandem.tensors.constructors import asarray, empty

AHEAD = 2  # messages that are received before they are needed


class Message(NamedTuple):
    """kind: "F" for values, "G" for gradients; number: of the block."""

    kind: str
    value: Value
    reader: int  # the stage that reads the value
    micro: int
    block: Block
    number: int


class Step:
    def __init__(self, pipe, micro: list[list], trains: bool = True):
        self.pipe, self.micro, self.trains = pipe, micro, trains
        self.values: dict = {}  # (value, micro-batch) -> tensor that this rank computed or received
        self.saved: dict = {}  # (stage, micro-batch) -> what backward needs
        self.gradients: dict = {}
        self.losses: list = []
        self.sends: list = []
        self.sent = 0  # bytes
        self.received = dict.fromkeys(range(pipe.group.size()), 0)  # messages asked for, of each rank
        self.under_way: dict = {}
        self.state = pipe.traced.advance(len(micro))
        chosen = lambda m: m.block.target == pipe.rank and (trains or m.kind == "F")
        self.messages = [[m for m in pipe.messages[r] if chosen(m)] for r in range(pipe.group.size())]
        self.order = [{m: i for i, m in enumerate(some)} for some in self.messages]

    def do(self, action: Action):
        getattr(self, f"_do_{action.kind}")(self.pipe.stages[action.stage], action.micro)

    def finish(self):
        for work in self.sends:
            work.wait()
        for stage in self.pipe.my_stages:
            if stage.finish is not None and self.gradients:
                own = list(stage.weights)
                moved = stage.finish.run(*(self.gradients[v] for v in own))
                self.gradients.update(zip(own, moved, strict=True))

    def _do_F(self, stage: Stage, micro: int):
        results = stage.programs.forward.run(*(self._input(v, stage, micro) for v in stage.inputs))
        count = len(stage.outputs)
        if self.trains:
            self.saved[stage.number, micro] = results[count:]
        for v, t in zip(stage.outputs, results[:count], strict=True):
            if v is self.pipe.loss:
                self.losses.append(t)
            buffer = self.pipe.written.get(v)
            if buffer is not None and self.trains:
                buffer.copy_(t)
            for reader in self.pipe.readers[v]:
                self._pass_on("F", v, stage, self.pipe.stages[reader], reader, micro, t)

    def _do_B(self, stage: Stage, micro: int):
        given = [*self._incoming(stage, micro), *self.saved.pop((stage.number, micro))]
        results = self._adding(stage, "backward", given)
        count = len(stage.gradients_out)
        self._send_gradients(stage, micro, results[:count])
        self.gradients.update(zip(stage.weights, results[count:], strict=True))

    def _do_I(self, stage: Stage, micro: int):
        given = [*self._incoming(stage, micro), *self.saved[stage.number, micro]]
        count, program = len(stage.gradients_out), stage.programs.for_inputs
        results = program.run(*given) if program.outputs else []
        self.saved[stage.number, micro] = [*given, *results[count:]]
        self._send_gradients(stage, micro, results[:count])

    def _do_W(self, stage: Stage, micro: int):
        results = self._adding(stage, "for_weights", self.saved.pop((stage.number, micro)))
        self.gradients.update(zip(stage.weights, results, strict=True))

    def _adding(self, stage: Stage, name: str, given: list) -> list:
        """Runs a program that gives gradients of weights; they are added to those of earlier micro-batches."""
        before = [self.gradients.get(v) for v in stage.weights]
        if any(g is None for g in before):
            results = getattr(stage.programs, name).run(*given)
            if all(g is None for g in before):
                return results
            first = len(results) - len(before)  # some are shared with another stage of this rank
            added = [g if b is None else b + g for b, g in zip(before, results[first:], strict=True)]
            return [*results[:first], *added]
        return stage.programs.adding[name].run(*given, *before)

    def _send_gradients(self, stage: Stage, micro: int, gradients: list):
        for v, g in zip(stage.gradients_out, gradients, strict=True):
            self._pass_on("G", v, stage, self.pipe.stages[self.pipe.producer[v]], stage.number, micro, g)

    def _input(self, v: Value, stage: Stage, micro: int):
        given = self.pipe.given(v, micro, self)
        if given is None:
            return self._take("F", v, self.pipe.stages[self.pipe.producer[v]], stage, stage.number, micro)
        return part_of(given, stage.place, self.pipe.rank, v, stage.inputs[v])

    def _incoming(self, stage: Stage, micro: int) -> list:
        found = []
        for v in stage.gradients_in:
            readers = [r for r in self.pipe.readers[v] if v in self.pipe.stages[r].gradients_out]
            parts = [self._take("G", v, self.pipe.stages[r], stage, r, micro) for r in readers]
            if not readers:  # the loss
                parts = [asarray(1.0 / len(self.micro), dtype=v.dtype)]
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            found.append(total)
        return found

    # -- messages

    def _pass_on(self, kind: str, v: Value, source: Stage, target: Stage, reader: int, micro: int, tensor):
        mine = source.place.box(self.pipe.rank, v.shape, placed(source, kind, v, True))
        for number, block in enumerate(route(kind, v, source, target)):
            if block.source == self.pipe.rank:
                part = tensor if block.box == mine else tensor[block.inside(mine)]
                self._give(Message(kind, v, reader, micro, block, number), part)

    def _give(self, message: Message, tensor):
        to, group = message.block.target, self.pipe.group
        if to == self.pipe.rank:
            self.values[message] = tensor
        else:
            self.sent += message.block.elements * message.value.dtype.itemsize
            self.sends.append(isend(F.contiguous(tensor), group.ranks[to], group))

    def _take(self, kind: str, v: Value, source: Stage, target: Stage, reader: int, micro: int):
        mine = target.place.box(self.pipe.rank, v.shape, placed(target, kind, v, False))
        parts = [
            (b, self._receive(Message(kind, v, reader, micro, b, i)))
            for i, b in enumerate(route(kind, v, source, target))
            if b.target == self.pipe.rank
        ]
        if len(parts) == 1 and parts[0][0].box == mine:
            return parts[0][1]
        whole = empty(tuple(n for _, n in mine), dtype=v.dtype)
        for block, part in parts:
            whole[block.inside(mine)].copy_(part)
        return whole

    def _receive(self, message: Message):
        source = message.block.source
        if source == self.pipe.rank:
            return self.values.pop(message)
        messages = self.messages[source]
        wanted = self.order[source][message] + 1
        group = self.pipe.group
        while self.received[source] < min(wanted + AHEAD, len(messages)):
            next_one = messages[self.received[source]]
            room = empty(tuple(n for _, n in next_one.block.box), dtype=next_one.value.dtype)
            self.under_way[next_one] = room, irecv(room, group.ranks[source], group)
            self.received[source] += 1
        room, work = self.under_way.pop(message)
        work.wait()
        return room


def placed(stage: Stage, kind: str, v: Value, leaves: bool) -> Placements:
    """How a value, or its gradient, lies where it leaves a stage or comes into it."""
    if kind == "F":
        return stage.outputs[v] if leaves else stage.inputs[v]
    return stage.gradients_out[v] if leaves else stage.gradients_in[v]


def route(kind: str, v: Value, source: Stage, target: Stage) -> tuple[Block, ...]:
    return blocks(
        tuple(v.shape), source.place, placed(source, kind, v, True), target.place, placed(target, kind, v, False)
    )


def messages_of(pipe, rank: int) -> list[Message]:
    """What a rank sends to others in a step, in order."""
    found = []
    row = next(r for r, place in enumerate(pipe.places) if rank in place.ranks)
    for kind, s, micro in pipe.schedule.actions[row]:
        stage = pipe.stages[s]
        if kind == "F":
            some = [("F", v, pipe.stages[r], r) for v in stage.outputs for r in pipe.readers[v]]
        elif kind in "BI":
            some = [("G", v, pipe.stages[pipe.producer[v]], s) for v in stage.gradients_out]
        else:
            continue
        for sort, v, target, reader in some:
            for number, block in enumerate(route(sort, v, stage, target)):
                if block.source == rank != block.target:
                    found.append(Message(sort, v, reader, micro, block, number))
    return found


def part_of(x, place: Place, rank: int, v: Value, placements: Placements):
    """A rank's part of a tensor or number that all ranks of a place have."""
    parts = parts_of(x) if hasattr(x, "shape") else None
    if parts is not None:
        return parts.local
    if not v.shape:
        return x
    for d, (start, count) in enumerate(place.box(rank, v.shape, placements)):
        if count != x.shape[d]:
            x = x.narrow(d, start, count)
    return x
