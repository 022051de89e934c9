"""A task's part of a program, as text and back.

The text is that of deferred graphs (session/serialize.py), of the nodes of one task, and besides: "ids", their places in the whole
program; "ranks", how many messages lie before them; "frames", names of loops with the loop around; "fed" and "fetched", numbers of
values that each run is given and gives.
Variables are named, and belong to the task. A value that another task computes is what a Receive gives.
"""

from __future__ import annotations

import hashlib
import json
from collections import ChainMap

from tandem.distributed.cluster.draws import Draws
from tandem.distributed.cluster.nodes import Filled, Receive, Send
from tandem.graph.ir import revise
from tandem.graph.serialize import document
from tandem.session.build import Variable
from tandem.session.graph import Graph, StepNode, SymbolicTensor
from tandem.session.nodes import Drawn, Random, Step
from tandem.session.queues import Queue, QueueOp
from tandem.session.serialize import DeferredReader, DeferredWriter, read_all

# What only parts have: it stays out of files.
_SAVED = {
    QueueOp: ("queue", "operation", "timeout", "n"),
    Filled: ("number",),
    Send: ("edge", "destination"),
    Receive: ("edge", "source", "sent", "everywhere", "condition", "names"),
}
_KINDS = ChainMap({kind.__name__: kind for kind in _SAVED}, Step.KINDS)


class PartWriter(DeferredWriter):
    """aliases: values of other tasks -> what stands for them here. controls: node -> Receives that it waits for besides.
    taken: (node, value) -> what stands for it there alone."""

    kinds = _KINDS

    def __init__(self, graph: Graph, nodes: list[StepNode], aliases: dict[SymbolicTensor, SymbolicTensor],
                 controls: dict[StepNode, list], draws: Draws, taken: dict):  # fmt: skip
        self.number, self.place, self.controls, self.taken = {}, {}, controls, taken
        self.draws, self._drawn = draws, None
        for node in nodes:
            for body in node.op.bodies:
                self._count(body.graph)
            self.place[node] = len(self.place)
            for v in node.outputs:
                self.number[v] = len(self.number)
        for outside, here in aliases.items():
            if here in self.number:
                self.number[outside] = self.number[here]

    def _node(self, node: StepNode) -> dict:
        start = self.draws.start.get(node)
        if start is not None:  # see Note [Random numbers over tasks]
            self._drawn = ["drawn", len(node.inputs), len(node.inputs) + 1, start]
        item = super()._node(node)
        item["inputs"] = [
            self.number[self.taken.get((node, v), v)] if self.taken else n
            for v, n in zip(node.inputs, item["inputs"], strict=True)
        ]
        if start is not None:
            item["inputs"] = [*item["inputs"], *(self.number[v] for v in self.draws.values)]
            self._drawn = None
        device = node.device
        item.pop("device", None)
        item.pop("beside", None)
        if device is not None and device.type != "cpu":
            item["device"] = device.type if device.index is None else f"{device.type}:{device.index}"
        return item

    def saved(self, op: Step) -> tuple[str, ...]:
        return _SAVED.get(type(op)) or op.saved

    def control(self, node: StepNode) -> list:
        return [*(n for n in node.control if n in self.place), *self.controls.get(node, ())]

    def variable(self, v: Variable) -> dict:
        return {"trainable": v.trainable}

    def other(self, x):
        if isinstance(x, Queue):
            return ["queue", queue_spec(x)]
        if isinstance(x, Random) and x.index is None and self._drawn is not None:
            return self._drawn
        return super().other(x)


def queue_spec(queue: Queue) -> dict:
    return {"kind": type(queue).__name__, "name": queue.name, "capacity": queue.capacity,
            "dtypes": [d.name for d in queue.dtypes], "shapes": [None if s is None else list(s) for s in queue.shapes],
            "least": queue.min_after_dequeue, "seed": queue.seed}  # fmt: skip


class Part:
    """nodes: in order. fed, fetched: values. aliases, controls, taken: see PartWriter. soft: whether nodes
    for devices that their task does not have run where they can."""

    def __init__(self, graph: Graph, nodes: list[StepNode], fed: list, fetched: list, aliases: dict, controls: dict,
                 frames: list, draws: Draws, ranks: dict, taken: dict, soft: bool = False):  # fmt: skip
        self.count = len(nodes)
        writer = PartWriter(graph, nodes, aliases, controls, draws, taken)
        self.text = document(
            graph.symbols, writer, deferred=True, name=graph.name, seed=None, nodes=[writer._node(n) for n in nodes],
            ids=[n.id for n in nodes], fed=[writer.number[v] for v in fed], fetched=[writer.number[v] for v in fetched],
            frames=frames, ranks=[ranks.get(n, 0) for n in nodes], soft=soft,
        )  # fmt: skip
        self.hash = hashlib.sha256(self.text.encode()).hexdigest()[:24]


class PartReader(DeferredReader):
    kinds = _KINDS
    trusted = True
    queues = None  # makes queues of their descriptions

    def _node(self, graph: Graph, item: dict):
        super()._node(graph, item)
        node = self.steps[-1]
        if node.op.is_variable:
            Variable.of(node, node.outputs[0], bool(item["trainable"]))
            self.values[-1] = node.outputs[0]

    def other(self, tag, rest):
        if tag == "queue":
            return self.queues(rest[0])
        if tag == "drawn":
            return Drawn(*map(int, rest))
        return super().other(tag, rest)


class ReadPart:
    """The same at the task."""

    def __init__(self, text: str, queues):
        found = json.loads(text)
        self.queues: list[tuple] = []  # what the text says of each, and the queue that is there

        def queue_of(spec):
            self.queues.append((spec, queues(spec)))
            return self.queues[-1][1]

        class WithQueues(PartReader):
            pass

        WithQueues.queues = staticmethod(queue_of)
        self.graph, reader = read_all(found, WithQueues)
        for node, at in zip(self.graph.nodes, found["ids"], strict=True):
            revise(node, "id", at)
        sends = {node.op.edge: node for node in self.graph.nodes if isinstance(node.op, Send)}
        for node in self.graph.nodes:
            if isinstance(node.op, Receive):
                node.op.after = tuple(sends[edge] for edge in node.op.sent)
        self.soft = bool(found["soft"])
        self.frames = [(str(name), int(parent)) for name, parent in found["frames"]]
        self.ranks = {n: int(rank) for n, rank in zip(self.graph.nodes, found["ranks"], strict=True) if rank}
        self.fed = [reader.values[i] for i in found["fed"]]
        self.fetched = [reader.values[i] for i in found["fetched"]]
