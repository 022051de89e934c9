"""A run of a graph, cut into a part for each task.

Note [Cuts]
The cut is made between the calls that a program consists of, not between primitives: a part is a deferred graph like the whole,
with nodes that send and receive, and its task traces it with the sizes that it meets, fuses and compiles it. So sizes that only a
task knows, such as those of what comes out of a queue, need no care here.

A value goes to each other task that reads it once, and what two tasks exchange between the same two points is one message. A
variable that another task reads is read by its own task, at the point of the program where the reader stands: after the writes
before and after what the reader waits for, before the writes after. What a node waits for on another task is a message without
tensors.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict

from tandem.distributed.cluster.draws import Draws
from tandem.distributed.cluster.gradients import CutGradients
from tandem.distributed.cluster.loops import Loops, place_loops
from tandem.distributed.cluster.nodes import Receive, Send
from tandem.distributed.cluster.parts import Part
from tandem.distributed.cluster.place import Placement, is_anywhere
from tandem.errors import UnsupportedError
from tandem.graph.ir import Value, revise
from tandem.session.graph import Graph, StepNode, SymbolicTensor
from tandem.session.nodes import Fed, Gradients, Identity
from tandem.session.primitives import Switch
from tandem.session.program import is_variable, needed, passed_through, position, written_by
from tandem.session.unknown import show_shape

_END = float(2**60)  # the place of what happens after all nodes


def make_node(graph: Graph, op, inputs, types, name: str, at: float, source, control=()) -> StepNode:
    """A node of a part that the graph does not have."""
    node = StepNode(graph, op, inputs, types, name, tuple(control), None)
    revise(node, "id", at)
    revise(node, "source", source)
    revise(node, "wired", ())
    return node


def _fed_name(v: Value) -> str:
    return v.node.name if v.index == 0 else f"{v.node.name}/result_{v.index}"


class Cut:
    """parts: task -> Part. feeds: task -> positions among what is fed. results: per fetched tensor, (task, its position there)."""

    def __init__(
        self, graph: Graph, fetches: list, fed: list[SymbolicTensor], spec, default: str, soft: bool, placer=None
    ):
        self.graph = graph
        self.fetches = [f for f in fetches if isinstance(f, Value)]
        fed_set = set(fed)
        if passed_through(fetches, fed_set):
            raise UnsupportedError(
                "run",
                "gradients pass through a tensor that is fed, which a cluster does not offer",
                fix="feed the tensors that it is computed from",
            )
        nodes = needed(fetches, fed_set)
        nodes = sorted({*nodes, *(v.node for n in nodes for v in written_by(n))}, key=position)
        self.missing = next((n for n in nodes if n.op.is_placeholder), None)
        self.parts: dict[str, Part] = {}
        if self.missing is not None:
            return
        self.seeds = [n.outputs[0] for n in nodes if n.op.is_seed]
        self.held = [n.outputs[0] for n in nodes if n.op.is_held]
        self.variables = [n.outputs[0] for n in nodes if n.op.is_variable]
        self.draws = Draws(graph, nodes, functools.partial(make_node, graph))
        self.fed = [*fed, *self.seeds, *self.draws.values]
        self.fed_set = self._fed = set(self.fed)
        self.place = Placement(nodes, spec, default, soft, placer)
        self._names = itertools.count()
        nodes = [n for n in nodes if not (isinstance(n.op, Fed) and n.outputs[0] in self._fed)]
        place_loops(nodes, self.place)
        cut = CutGradients(nodes, self.place, self._fed, functools.partial(make_node, graph))
        self._nodes, self.instead = cut.nodes, cut.instead
        self.stand_in: dict[tuple[StepNode, Value], Value] = {}  # (node, value) -> what it takes in its place
        self.loops: Loops | None = None
        if any(n.op.hand_wired for n in self._nodes):
            self.loops = Loops(self, self._nodes, self.fetches, functools.partial(make_node, graph))
            self._nodes = [*self.loops.nodes, *self.loops.constants]
            self.stand_in.update(self.loops.stand_in)
        self._reads: dict[tuple, StepNode] = {}
        self._read_nodes: set[StepNode] = set()
        self._read_at: dict[tuple, dict] = defaultdict(dict)  # (task, variable) -> reads for it, with a reader of each
        self._writes = defaultdict(list)
        for n in self._nodes:
            for v in written_by(n):
                self._writes[v].append(position(n))
        self._find_crossings()
        self._join_messages()
        self._make_parts()

    def task_of(self, node: StepNode) -> str:
        return self.place[node]

    def explain(self) -> str:
        """The parts, and what crosses between them, as text."""
        fetched = ", ".join(v.name for v in self.fetches) or "operations"
        lines = [f"run of {fetched}: {len(self.parts)} tasks, {len(self.messages)} messages"]
        for task, part in self.parts.items():
            lines.append(f"  {task}: {part.count} nodes, {len(part.text)} bytes once, as {part.hash}")
            for (source, there, _), (values, waits) in self.messages.items():
                if source == task:
                    what = [f"{v.name} {show_shape(v.type.shape)}" for v in values] + [
                        f"{n.name} is done" for n in waits
                    ]
                    lines.append(f"    to {there}: {', '.join(what)}")
        return "\n".join(lines)

    # -- what crosses

    def _find_crossings(self):
        """What each node takes from other tasks: (value or node waited for, reader's task), and the reads that this asks for."""
        self.values: dict[tuple[Value, str], None] = {}
        self.waits: dict[tuple[StepNode, str], None] = {}
        for node in list(self._nodes):
            if isinstance(node.op, Fed):
                continue
            here = self.task_of(node)
            for v in self._taken(node):
                if v in self._fed or is_anywhere(v.node) or self.task_of(v.node) == here:
                    continue
                if is_variable(v):
                    if self.loops is not None:
                        self.loops.check_read(node, v)
                    self.stand_in[node, v] = v = self._read_for(node, v, here).outputs[0]
                self.values[v, here] = None
            for c in node.control:
                if not is_anywhere(c) and self.task_of(c) != here:
                    self.waits[c, here] = None

    def _actual(self, v: Value) -> Value:
        """What stands for a value of the graph."""
        return self.instead.get(v, v)

    def _taken(self, node: StepNode) -> list[Value]:
        """What a node takes, of which remote variables were read."""
        return [self.stand_in.get((node, v), v) for v in map(self._actual, node.inputs)]

    def _when(self, node: StepNode) -> tuple:
        """The point at which a node reads variables: for gradients, that of what they are gradients of."""
        if isinstance(node.op, Gradients):
            return max(position(v.node) for v in node.inputs[: node.op.ys])
        return position(node)

    def _read_for(self, node: StepNode, v: SymbolicTensor, here: str) -> StepNode:
        known = self._read_at[here, v]
        if not isinstance(node.op, Gradients) or not known:
            in_loop = self.loops is not None and self.loops.frame_of.get(node)  # which reads it once, before it begins
            read = self._read(v, self._when(node), () if in_loop else node.control)
            known[read] = node
            return read
        if len(known) > 1:  # gradients are of what was read, and there must be one such value
            one, other = list(known.values())[:2]
            raise UnsupportedError(
                "run",
                f"{node.name!r} are gradients by variable {v.name!r} of {self.task_of(v.node)}, which {one.name!r} and "
                f"{other.name!r} read on {here} at different times",
                fix="read it once: with td.colocate_with(v): now = v.value()",
                source=node.source,
            )
        return next(iter(known))

    def _read(self, v: SymbolicTensor, at: tuple, control: tuple) -> StepNode:
        """A node at the variable's task that reads it, between the same two writes, after these nodes."""
        key = v, sum(write < at for write in self._writes[v]), frozenset(control)
        found = self._reads.get(key)
        if found is None:
            name = f"{v.node.name}/read_{next(self._names)}"
            found = make_node(self.graph, Identity(), (v,), (v.type,), name, at[0] - 0.5, v.node.source, control)
            self._reads[key] = found
            self._read_nodes.add(found)
            there = self.place[found] = self.task_of(v.node)
            for c in control:
                if not is_anywhere(c) and self.task_of(c) != there:
                    self.waits[c, there] = None
        return found

    # -- messages

    def _join_messages(self):
        """(source, destination, level or producer) -> what goes there in one message."""
        waits = any(n.op.blocking or n.op.hand_wired for n in self._nodes)
        self._find_levels()
        self.messages: dict[tuple, tuple[list, list]] = {}
        for v, there in self.values:
            what = v if isinstance(v.node.op, Switch) else v.node  # either output of a Switch may be dead
            self._message(v.node, what, there, waits)[0].append(v)
        for node, there in self.waits:
            self._message(node, (node, "done"), there, waits)[1].append(node)
        self._find_before()

    def _message(self, node: StepNode, what, there: str, alone: bool) -> tuple[list, list]:
        key = self.task_of(node), there, what if alone else self.levels[node]
        return self.messages.setdefault(key, ([], []))

    def _find_levels(self):
        """How many messages lie before each node. Messages between the same tasks after as many are one."""
        self.levels: dict[StepNode, int] = {}
        written: dict = defaultdict(int)  # variable -> level of its last write
        read: dict = defaultdict(int)  # of its reads so far
        for node in sorted([*self._nodes, *self._reads.values()], key=position):
            if isinstance(node.op, Fed):
                continue
            here, level = self.task_of(node), 0
            taken = [v for v in self._taken(node) if v not in self._fed]
            for source in [*(v.node for v in taken), *node.control]:
                if source in self.levels:
                    level = max(level, self.levels[source] + (self.task_of(source) != here))
            own = [*(v for v in taken if is_variable(v)), *written_by(node)]
            level = max([level, *(written[v] for v in own), *(read[v] for v in written_by(node))])
            for v in own:
                read[v] = max(read[v], level)
            for v in written_by(node):
                written[v] = level
            self.levels[node] = level
        self._order = sorted(
            [*self._nodes, *self._reads.values()], key=lambda node: (self.levels.get(node, -1), *position(node))
        )

    def _find_before(self):
        """Which messages each depends on, as the bits of a number."""
        edge = {key: k for k, key in enumerate(self.messages)}
        carrier = {}  # (value or node, destination) -> its message
        makers: dict = defaultdict(list)
        for key, (values, waits) in self.messages.items():
            carrier.update({(x, key[1]): edge[key] for x in (*values, *waits)})
            for node in (*(v.node for v in values), *waits):
                makers[node].append(key)
        self.before = [0] * len(edge)  # of each message, those that it depends on
        upstream: dict[StepNode, int] = {}
        written: dict = defaultdict(int)  # variable -> what its writes so far depend on
        read: dict = defaultdict(int)
        for node in self._order:
            if node not in self.levels:
                continue
            here, found = self.task_of(node), 0
            for x in (*self._taken(node), *node.control):
                source = x.node if isinstance(x, Value) else x
                k = carrier.get((x, here))
                found |= upstream.get(source, 0) if k is None else (1 << k) | self.before[k]
            changed = written_by(node)
            own = [*(v for v in self._taken(node) if is_variable(v)), *changed]
            for v in own:  # reads come after writes before them, writes after both
                found |= written[v] | (read[v] if v in changed else 0)
            for v in own:
                read[v] |= found
            for v in changed:
                written[v] |= found
            upstream[node] = found
            for key in makers[node]:
                self.before[edge[key]] |= found

    # -- parts

    def _make_parts(self):
        tasks: dict[str, list] = defaultdict(list)  # task -> nodes of its own
        first: dict[StepNode, list] = defaultdict(list)  # node -> Receives that come before it
        last: dict[StepNode, list] = defaultdict(list)  # node -> Sends that come after it
        aliases: dict[str, dict] = defaultdict(dict)
        controls: dict[str, dict] = defaultdict(lambda: defaultdict(list))
        order = self._order
        at = {node: k for k, node in enumerate(order)}
        readers = self._readers(order)
        sources = [key[0] for key in self.messages]
        for edge, ((source, there, _), (values, waits)) in enumerate(self.messages.items()):
            makers = [*(v.node for v in values), *waits]
            end = max(makers, key=at.__getitem__)
            users = [n for v in values for n in readers[v, there]] + [n for w in waits for n in readers[w, there]]
            begin = min(users, key=at.__getitem__)
            send = make_node(
                self.graph, Send(edge, there), values, (), f"send_{edge}", end.id, end.source, dict.fromkeys(waits)
            )
            sent = tuple(k for k, task in enumerate(sources) if task == there and self.before[edge] >> k & 1)
            types = tuple(v.type for v in values)
            op = Receive(edge, source, sent, names=tuple(self._read_of(v).name for v in values))
            receive = make_node(self.graph, op, (), types, f"receive_{edge}", begin.id, end.source)
            if self.loops is not None:
                self._receive_in_loops(op, receive, values, waits, users, there, controls)
            last[end].append(send)
            first[begin].append(receive)
            aliases[there].update(zip(values, receive.outputs, strict=True))
            for w in waits:
                for n in readers[w, there]:
                    controls[there][n].append(receive)
        taken: dict[str, dict] = defaultdict(dict)
        for (node, v), read in self.stand_in.items():
            # A remote variable is what was read of it, a constant of a loop its copy.
            here = self.task_of(node)
            actual = aliases[here].get(read, read)
            if aliases[here].setdefault(v, actual) is not actual:
                taken[here][node, v] = actual
        for old, new in self.instead.items():
            for task in self.place.spec.tasks:
                aliases[task][old] = aliases[task].get(new, new)
        constants = [n for n in order if is_anywhere(n)]
        for node in order:
            if is_anywhere(node):
                continue
            tasks[self.task_of(node)] += [*first[node], node, *last[node]]
        self._place_fetches(tasks, order)
        self._finish(tasks, constants, aliases, controls, taken)

    def _read_of(self, v: Value) -> Value:
        """The variable that a value was read of, for its name; else the value."""
        return v.node.inputs[0] if v.node in self._read_nodes else v

    def _receive_in_loops(self, op: Receive, receive: StepNode, values, waits, users, there: str, controls: dict):
        """See Note [Loops over tasks]."""
        loops = self.loops
        frame = loops.frame((*values, *waits)[0])
        if frame:
            controls[there][receive].append(loops.merge(there, frame))
        elif frame is None:  # a constant of the run
            op.everywhere = any(loops.frame_of.get(n) for n in users)
        if values and self._read_of(values[0]) is values[0]:
            op.condition = loops.condition(values[0])

    def _readers(self, order: list) -> dict:
        found = defaultdict(list)
        for node in order:
            if is_anywhere(node):
                continue
            here = self.task_of(node)
            for v in self._taken(node):
                found[v, here].append(node)
            for c in node.control:
                found[c, here].append(node)
        return found

    def _place_fetches(self, tasks: dict, order: list):
        self.results: list[tuple[str, int]] = []
        self.fetched: dict[str, list] = defaultdict(list)
        for v in map(self._actual, self.fetches):
            if is_variable(v) and v not in self._fed:
                name = f"{v.node.name}/fetch_{next(self._names)}"
                read = make_node(self.graph, Identity(), (v,), (v.type,), name, _END, v.node.source)
                self.place[read] = self.task_of(v.node)
                tasks[self.task_of(v.node)].append(read)
                v = read.outputs[0]
            task = self.place.default if v in self._fed or is_anywhere(v.node) else self.task_of(v.node)
            self.results.append((task, len(self.fetched[task])))
            self.fetched[task].append(v)

    def _finish(self, tasks: dict, constants: list, aliases: dict, controls: dict, taken: dict):
        self.feeds: dict[str, list[int]] = {}
        for task in dict.fromkeys([*tasks, *self.fetched]):
            nodes = tasks[task]
            used = {self._actual(v) for n in nodes for v in n.inputs} | {*self.fetched[task]}
            if any(n in self.draws.start for n in nodes):
                used.update(self.draws.values)
            fed = [k for k, v in enumerate(self.fed) if v in used]
            held = [n for n in constants if n.outputs[0] in used and n.outputs[0] not in self._fed]
            placeholders = [
                make_node(self.graph, Fed("placeholder"), (), (v.type,), _fed_name(v), v.node.id, v.node.source)
                for v in (self.fed[k] for k in fed)
            ]
            known = {**aliases[task], **{self.fed[k]: p.outputs[0] for k, p in zip(fed, placeholders, strict=True)}}
            own = [n for n in nodes if isinstance(n.op, Fed)]
            written = [v.node for n in nodes for v in written_by(n)]
            own = [n for n in dict.fromkeys([*own, *written]) if n.outputs[0] not in self._fed]
            rest = [n for n in nodes if not isinstance(n.op, Fed)]
            self.feeds[task] = fed
            self.parts[task] = Part(
                self.graph, [*placeholders, *held, *own, *rest], [p.outputs[0] for p in placeholders],
                self.fetched[task], known, controls[task], [] if self.loops is None else self.loops.names(),
                self.draws, self.levels if self.loops is None else {}, taken[task], self.place.soft,
            )  # fmt: skip
