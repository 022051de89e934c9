"""Gradients of what several tasks compute: each task differentiates what it computed.

Note [Gradients over tasks]
A Gradients node stands for the reverse of all nodes between xs and ys. Where those are on one task, it is there too. Where they
are on several, they are divided into segments: what one task computes between two crossings. A segment gets a Gradients node of its
own, from the gradients of its results to those of what came in, and gradients of a value that several segments read are added up.
So a gradient crosses where its value did, the other way. What a segment takes counts as independent there, though the same task
may have computed one of it from another: the segment that did so has its own turn.

Gradients of gradients are cut in the same way: the nodes made for the first ones are then among those between xs and ys. What such
a node gives depends on all that its segment takes, also on what it has no gradient of, so that counts as an operand (`_reads`).

The part that has a segment traces it again with its gradients where these cannot be computed at the same time, as for all groups
of a dataflow graph; what is costly is kept from one to the other (Note [Groups] in session/flow_groups.py).
"""

from __future__ import annotations

from collections import defaultdict

from tandem.distributed.cluster.nodes import Filled
from tandem.graph.ir import Value
from tandem.ops.define import FUNCTIONS
from tandem.session.graph import StepNode
from tandem.session.nodes import Call, Gradients, Operand


class CutGradients:
    """nodes: those of the run, in order, with what stands for Gradients over several tasks. instead: values of the graph -> what
    stands for them. make(op, inputs, types, name, at, source) gives a new node; place is told where those are."""

    def __init__(self, nodes: list[StepNode], place: dict, fed: set, make):
        self.place, self.fed, self.make = place, fed, make
        self.instead: dict[Value, Value] = {}
        self.nodes: list[StepNode] = []
        self._reads: dict[StepNode, dict[Value, None]] = {}  # of Gradients: what nodes take that they differentiate
        for node in nodes:
            if isinstance(node.op, Gradients):
                self._cut(node)
            else:
                self.nodes.append(node)

    def _operands(self, node: StepNode) -> list[Value]:
        """What the results of a node depend on."""
        return [self.instead.get(v, v) for v in (*node.inputs, *self._reads.get(node, ()))]

    def _cut(self, node: StepNode):
        op = node.op
        inputs = [self.instead.get(v, v) for v in node.inputs]
        ys, xs = inputs[: op.ys], inputs[op.ys : op.ys + op.xs]
        between = self._between(ys, xs)
        tasks = {self.place[n] for n in between}
        if len(tasks) <= 1:
            self.place[node] = tasks.pop() if tasks else self.place[node]
            self.nodes.append(node)
            self._reads[node] = self._taken_by(between)
            return
        self._made = 0
        self._node = node
        gradients: dict[Value, list[Value]] = defaultdict(list)
        given = iter(inputs[op.ys + op.xs :])
        for y, has in zip(ys, op.given, strict=True):
            task = self.place.get(y.node, self.place[node])
            gradients[y].append(next(given) if has else self._filled(1, y, task))
        for (_, task), members in sorted(self._segments(between, xs).items(), key=lambda item: -item[0][0]):
            self._differentiate(task, members, set(between), set(xs), gradients)
        for x, old in zip(xs, node.outputs, strict=True):
            task = self.place.get(x.node, self.place[node])
            found = gradients[x]
            self.instead[old] = self._sum(found) if found else self._filled(0, x, task)

    def _taken_by(self, members) -> dict[Value, None]:
        """What nodes take that none of them gives."""
        own = set(members)
        return dict.fromkeys(v for n in members for v in self._operands(n) if v.node not in own)

    def _between(self, ys, xs) -> list[StepNode]:
        """Nodes on the way from xs to ys, in order."""
        reached, found = self._ancestors(ys), []
        reaching = set(xs)
        for node in self.nodes:
            if not node.op.differentiable or not any(
                v in reaching for v in self._operands(node) if v not in self.fed or v in xs
            ):
                continue
            outputs = [v for v in node.outputs if v in reached and v not in self.fed]
            if outputs:
                found.append(node)
                reaching.update(outputs)
        return found

    def _ancestors(self, ys) -> set:
        """Values that ys depend on by a path along which gradients flow."""
        found: set = set()
        stack = list(ys)
        while stack:
            v = stack.pop()
            if v not in found and v.dtype.is_inexact:
                found.add(v)
                if v.node.op.differentiable:
                    stack.extend(self._operands(v.node))
        return found

    def _segments(self, between: list[StepNode], xs) -> dict[tuple[int, str], list[StepNode]]:
        """(how many segments lie before, task) -> nodes."""
        stage: dict[StepNode, int] = {}
        found: dict = defaultdict(list)
        xs, inside = set(xs), set(between)
        for node in between:
            here, at = self.place[node], 0
            for v in self._operands(node):
                if v.node in inside and v not in self.fed:
                    at = max(at, stage[v.node] + (self.place[v.node] != here or v in xs))
            stage[node] = at
            found[at, here].append(node)
        return found

    def _differentiate(self, task: str, members: list, between: set, xs: set, gradients: dict):
        results = [v for n in members for v in n.outputs if gradients.get(v)]
        if not results:
            return
        reads = self._taken_by(members)
        taken = [
            v for v in dict.fromkeys([*reads, *(v for n in members for v in self._operands(n) if v in xs)])
            if v.dtype.is_inexact and (v in xs or (v.node in between and v not in self.fed))
        ]  # fmt: skip
        incoming = [self._sum(gradients[v]) for v in results]
        op = Gradients(len(results), len(taken), (True,) * len(results), True)
        made = self._add(op, (*results, *taken, *incoming), tuple(v.type for v in taken), "gradients", task)
        self._reads[made] = reads
        for v, g in zip(taken, made.outputs, strict=True):
            gradients[v].append(g)

    def _sum(self, values: list[Value]) -> Value:
        total = values[0]
        for v in values[1:]:
            op = Call(FUNCTIONS["add"], [Operand(0), Operand(1)], {}, present=(True,))
            total = self._add(op, (total, v), (total.type,), "add", self.place[total.node]).outputs[0]
        values[:] = [total]
        return total

    def _filled(self, number: int, like: Value, task: str) -> Value:
        return self._add(Filled(number), (like,), (like.type,), "filled", task).outputs[0]

    def _add(self, op, inputs, types, name: str, task: str) -> StepNode:
        self._made += 1
        at = self._node.id - 1 + self._made * 2.0**-16
        made = self.make(op, inputs, types, f"{self._node.name}/{name}_{self._made}", at, self._node.source)
        self.place[made] = task
        self.nodes.append(made)
        return made
