"""What a task's part of a graph has besides: nodes that send to other tasks and receive from them."""

from __future__ import annotations

import tandem.ops as F
from tandem.session.nodes import Host, Step


class Filled(Step):
    """A number in the shape of its operand: what gradients begin with."""

    name = "filled"
    differentiable = False

    def __init__(self, number: int):
        super().__init__()
        self.number = number

    def run(self, trace, node, operands):
        return [F.ones_like(operands[0]) if self.number else F.zeros_like(operands[0])]


class Send(Host):
    """Its operands go to another task, in one message; without operands, that it has run. If one is dead, so is the message."""

    name = "send"
    placed = always = True

    def __init__(self, edge: int, destination: str):
        super().__init__()
        self.edge, self.destination = edge, destination

    def call(self, node, operands, cancellation, step, iteration, dead) -> list:
        step.send(self.destination, self.edge, iteration, None if dead else operands)
        return []


class Receive(Host):
    """What another task sends as this edge, once it is there; dead if that is. sent: edges that this task sends before, on which it
    depends there; `after` are their nodes, once a part was read. everywhere: it is used in loops, though it is no value of one.
    condition: receives that are live at the same time have the same one, 0 if that is always. names: what its results are called
    where they are made, for errors."""

    name = "receive"
    placed = blocking = True

    def __init__(self, edge: int, source: str, sent: tuple = (), everywhere: bool = False, condition: int = 0,
                 names: tuple = ()):  # fmt: skip
        super().__init__()
        self.edge, self.source, self.sent = edge, source, sent
        self.everywhere, self.condition, self.names = everywhere, condition, names

    def result_name(self, node: str, index: int) -> str:
        return self.names[index]

    def call(self, node, operands, cancellation, step, iteration, dead) -> list | None:
        return step.receive(self.edge, iteration)
