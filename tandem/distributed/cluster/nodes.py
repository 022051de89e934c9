"""What a task's part of a graph has besides: nodes that send to other tasks and receive from them."""

from __future__ import annotations

from tandem.session.nodes import Host


class Send(Host):
    """Its operands go to another task, in one message; without operands, that it has run. If one is dead, so is the message."""

    name = "send"
    placed = always = True

    def __init__(self, edge: int, destination: str):
        super().__init__()
        self.edge, self.destination = edge, destination

    def call(self, node, operands, cancellation, step, iteration) -> list:
        dead = any(x is None for x in operands)
        step.send(self.destination, self.edge, iteration, None if dead else operands)
        return []


class Receive(Host):
    """What another task sends as this edge, once it is there; dead if that is."""

    name = "receive"
    placed = blocking = True

    def __init__(self, edge: int, source: str):
        super().__init__()
        self.edge, self.source = edge, source

    def call(self, node, operands, cancellation, step, iteration) -> list | None:
        return step.receive(self.edge, iteration)
