"""Which ordinary nodes of a dataflow graph run together, as one plan.

Note [Groups]
The executor runs groups: nodes that are connected, in one frame, live under the same conditions, and with nothing but ordinary
nodes between them. The *condition* of a value is a set of (predicate, branch) pairs, one for each Switch that it came through,
so a group is dead exactly when each of its nodes would be. The *level* of a node counts what lies between it and the beginning:
primitives, Python functions, queues, writes of variables. Nodes of a group have one level, so no path leaves a group and comes
back to it. Such a path may lead through other tasks: where nodes have ranks, the numbers of messages that lie before them in the
whole program, a group has one rank too (cluster/cut.py). So what it sends never waits for what depends on it elsewhere.

A group that takes gradients of what another group computes traces that again, as gradients need to see it. What is costly there
(products, reductions, loops) is not computed again: its results come from the other group, and gradients pass to what they
were computed of (Replaced in nodes.py). The rest, which is elementwise, is computed along the way.

Reads and writes of a variable keep the order in which they were built: each write waits for the reads before it, each read for
the write before it. Where one of them is in a loop that the other is outside of, the whole loop takes its place.
"""

from __future__ import annotations

from collections import defaultdict

from tandem.graph.ir import current_builder
from tandem.ops.define import Composite, LibraryOp
from tandem.ops.reduce import Reduce
from tandem.ops.region import Region
from tandem.session.build import ancestors
from tandem.session.flow_check import ANYWHERE, Frames
from tandem.session.graph import StepNode, infer
from tandem.session.nodes import Call, Fed, Gradients, Group, Print, Store
from tandem.session.nodes import Primitive as Applied
from tandem.session.primitives import Enter, LoopCond, Merge, NextIteration, Primitive, Switch
from tandem.session.program import is_host, is_variable, position, written_by


def is_ordinary(node: StepNode) -> bool:
    return not isinstance(node.op, (Primitive, Fed, Group, Print)) and not is_host(node)


def is_costly(node: StepNode) -> bool:
    """Whether computing a node again costs more than keeping its results."""
    if not isinstance(node.op, (Call, Applied)):
        return False
    found = []

    def run(trace, values):
        results = node.op.run(trace, node, values)
        made = current_builder().graph.nodes
        found.append(any(isinstance(n.op, (Composite, LibraryOp, Reduce, Region)) for n in made))
        return results

    infer(node.graph, run, node.inputs)
    return found[0]


def variables_read(node: StepNode) -> list:
    found = [v for v in node.inputs if is_variable(v)]
    if isinstance(node.op, Store) and node.op.reads:
        found.append(node.op.variable)
    return found


class Grouping:
    """groups: lists of ordinary nodes; orders[node]: nodes, or frames (as ints), that must be over before it."""

    def __init__(self, nodes: list[StepNode], frames: Frames, fed: set, passed: set, ranks: dict | None = None):
        self.nodes = nodes
        self.ranks = ranks or {}
        self.frames = frames
        self.fed = fed
        self.passed = passed  # those that gradients pass through
        self.written = {v for node in nodes for v in written_by(node)}
        self.orders: dict[StepNode, list] = defaultdict(list)
        self._conditions: dict = {}
        self._order_variables()
        self._find_conditions()
        self._find_levels()
        self._find_groups()

    def floating(self, node: StepNode) -> bool:
        """Whether a node needs no value of the run: each group that uses it computes it for itself."""
        if not is_ordinary(node) or self.frames.frame_of[node] is not ANYWHERE or written_by(node):
            return False
        return not any(v in self.written for v in variables_read(node))

    # -- order of reads and writes

    def _order_variables(self):
        accesses = defaultdict(list)  # variable -> [(node, writes)]
        for node in self.nodes:
            if isinstance(node.op, Fed):
                continue
            written = written_by(node)
            for v in {*variables_read(node), *written}:
                if v not in self.fed:
                    accesses[v].append((node, v in written))
        for steps in accesses.values():
            steps.sort(key=lambda step: position(step[0]))
            if not any(writes for _, writes in steps):
                continue
            for at, (node, writes) in enumerate(steps):
                for before, wrote in steps[:at]:
                    if writes or wrote:
                        self._order(before, node)

    def _order(self, before: StepNode, after: StepNode):
        """Makes `before` run first. In different frames: the child frames of their common frame stand for what is inside."""
        a, b = self.frames.frame_of[before] or 0, self.frames.frame_of[after] or 0
        chain_a, chain_b = self._chain(a), self._chain(b)
        depth = 0
        while depth < min(len(chain_a), len(chain_b)) and chain_a[depth] == chain_b[depth]:
            depth += 1
        first = before if depth == len(chain_a) else chain_a[depth]
        if depth == len(chain_b):
            targets = [after]
        else:
            entered = chain_b[depth]
            targets = [n for n in self.nodes if isinstance(n.op, Enter) and self.frames.entered(n) == entered]
        for target in targets:
            if first is not target and first not in self.orders[target]:
                self.orders[target].append(first)

    def _chain(self, frame: int) -> list[int]:
        chain = []
        while frame >= 0:
            chain.append(frame)
            frame = self.frames.parents[frame]
        return chain[::-1]

    # -- conditions

    def condition(self, v) -> frozenset:
        if v in self.fed or v.node not in self._conditions:
            return frozenset()
        found = self._conditions[v.node]
        if isinstance(v.node.op, Switch):
            return found | {(self._predicate(v.node.inputs[1]), v.index)}
        return found

    @staticmethod
    def _predicate(v):
        while isinstance(v.node.op, LoopCond):
            v = v.node.inputs[0]
        return v

    def _find_conditions(self):
        regular = set(range(len(self.frames.parents)))  # loops whose variables all come round under the same condition
        while True:
            self._conditions.clear()
            for node in self.nodes:
                self._conditions[node] = self._condition_of(node, regular)
            irregular = set()
            rounds = defaultdict(set)
            for node in self.nodes:
                if isinstance(node.op, NextIteration):
                    rounds[self.frames.frame_of[node]].add(self._conditions[node])
            for frame, seen in rounds.items():
                if len(seen) > 1 and frame in regular:
                    irregular.add(frame)
            if not irregular:
                return
            regular -= irregular

    def _condition_of(self, node: StepNode, regular: set) -> frozenset:
        op = node.op
        if isinstance(op, Fed):
            return frozenset()
        ordered = frozenset().union(*(self._conditions.get(c, frozenset()) for c in node.control))
        if op.condition:
            ordered |= {("host", op.condition)}
        if not isinstance(op, Merge):
            return ordered.union(*(self.condition(v) for v in node.inputs))
        if any(isinstance(v.node.op, NextIteration) for v in node.inputs):
            frame = self.frames.frame_of[node]
            return ordered | {("loop", frame if frame in regular else node)}
        parts = [self.condition(v) for v in node.inputs]
        common = frozenset.intersection(*parts)
        rests = [p - common for p in parts]
        if len(rests) == 2 and all(len(r) == 1 for r in rests):
            (a,), (b,) = rests
            if a[0] is b[0] and a[1] != b[1]:
                return ordered | common
        if any(not r for r in rests):
            return ordered | common
        return ordered | common | {("merge", node)}

    # -- levels and groups

    def _find_levels(self):
        self.levels: dict[StepNode, int] = {}
        frame_level: dict[int, int] = defaultdict(int)
        for node in self.nodes:
            level = self.ranks.get(node, 0) * (len(self.nodes) + 1)
            plain = is_ordinary(node) and not written_by(node)
            sources = [(v.node, False) for v in node.inputs if v not in self.fed]
            sources += [(c, True) for c in node.control]
            sources += [(o, True) for o in self.orders[node]]
            sources += [(o, True) for o in node.op.after]
            for source, only_order in sources:
                if isinstance(source, int):
                    level = max(level, frame_level[source] + 1)
                elif source in self.levels and not isinstance(source.op, Fed):
                    together = plain and not only_order and is_ordinary(source) and not written_by(source)
                    level = max(level, self.levels[source] + (not together))
            self.levels[node] = level
            frame = self.frames.frame_of[node] or 0
            while frame > 0:
                frame_level[frame] = max(frame_level[frame], level)
                frame = self.frames.parents[frame]

    def _find_groups(self):
        group_of: dict[StepNode, list] = {}
        for node in self.nodes:
            if not is_ordinary(node) or self.floating(node):
                continue
            group = [node]
            if not written_by(node):
                key = self._key(node)
                for v in node.inputs:
                    other = group_of.get(v.node)
                    if (
                        v in self.fed
                        or other is None
                        or other is group
                        or written_by(v.node)
                        or self._key(v.node) != key
                    ):
                        continue
                    small, large = sorted((group, other), key=len)
                    large.extend(small)
                    for n in small:
                        group_of[n] = large
                    group = large
            group_of[node] = group
        self.groups = []
        seen = set()
        for node in self.nodes:
            group = group_of.get(node)
            if group is not None and id(group) not in seen:
                seen.add(id(group))
                group.sort(key=self.nodes.index)
                self.groups.append(group)

    def _key(self, node: StepNode):
        return self.frames.frame_of[node], self.levels[node], self._conditions[node]

    # -- what a group computes for itself

    def helpers(self, group: list[StepNode]) -> list[StepNode]:
        """Nodes outside of the group that it computes too: those that float, and what its gradients are taken of."""
        wanted: set = set()
        taken = [n for n in group if isinstance(n.op, Gradients)]
        # What gradients are taken of may begin with members: they pass through these to what is outside.
        between = {v.node for v in ancestors([y for n in taken for y in n.inputs[: n.op.ys]])} if taken else set()
        stack = [
            (v, n in between or isinstance(n.op, Gradients) or (bool(taken) and v in self.passed))
            for n in group
            for v in n.inputs
        ]
        members = set(group)
        while stack:
            v, through = stack.pop()
            node = v.node
            cut = v in self.fed and not (through and v in self.passed)
            if cut or node in members or node in wanted or not is_ordinary(node) or written_by(node):
                continue
            if self.floating(node) or through:
                wanted.add(node)
                stack.extend((u, through) for u in node.inputs)
        return [n for n in self.nodes if n in wanted]
