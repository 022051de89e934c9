"""Which frame each node of a dataflow graph belongs to, and refusals of wiring that could not run."""

from __future__ import annotations

from tandem.errors import ValueRangeError
from tandem.session.graph import StepNode
from tandem.session.nodes import Fed
from tandem.session.primitives import Enter, Exit, LoopCond, Merge, NextIteration, Primitive, Switch

ANYWHERE = (
    None  # the frame of what needs no value of the run: constants, variables, and what is computed from them alone
)


class Frames:
    """frame_of[node]: number of the frame a node runs in, 0 outside of loops, or ANYWHERE."""

    def __init__(self, nodes: list[StepNode], fed: set, fetches: list, known=()):
        self.nodes = nodes
        self.fed = fed
        self.parents: list[int] = [-1]
        self.names: list[str] = [""]
        self.numbers: dict[tuple, int] = {}
        for name, parent in known:
            self.numbers[name, parent] = len(self.parents)
            self.parents.append(parent)
            self.names.append(name)
        self.frame_of: dict[StepNode, int | None] = {}
        self._check_collectives()
        self._check_merges()
        for node in nodes:
            self.frame_of[node] = self._place(node)
        self._check_back_edges()
        self._check_fetches(fetches)
        self._check_loops()

    def _check_collectives(self):
        """A dataflow graph runs what is ready, so that ranks might run collectives in different orders."""
        for node in self.nodes:
            if node.op.collective:
                raise refuse(
                    node, "a collective needs its place in one order of all, and a graph wired by hand has none",
                    fix="use td.cond, td.while_loop or td.scan instead of wiring, and read queues in another graph",
                )  # fmt: skip

    def entered(self, node: StepNode) -> int:
        """The frame that an Enter leads into."""
        key = (node.op.frame_name, self.frame_of[node] or 0)
        if key not in self.numbers:
            self.numbers[key] = len(self.parents)
            self.parents.append(key[1])
            self.names.append(key[0])
        return self.numbers[key]

    def result_frame(self, v) -> int | None:
        """The frame that a value belongs to."""
        if v in self.fed:
            return 0
        node = v.node
        frame = self.frame_of[node]
        if isinstance(node.op, Enter):
            return self.entered(node)
        return self.parents[frame] if isinstance(node.op, Exit) else frame

    def _place(self, node: StepNode) -> int | None:
        if isinstance(node.op, Fed):
            return 0 if node.op.name == "placeholder" else ANYWHERE
        found, witness = ANYWHERE, None
        sources = [(v, self.result_frame(v)) for v in node.inputs if not _is_back_edge(node, v)]
        sources += [(c, self._after(c)) for c in node.control if c in self.frame_of]
        for source, frame in sources:
            if frame is ANYWHERE:
                continue
            if found is ANYWHERE:
                found, witness = frame, source
            elif found != frame:
                raise refuse(
                    node,
                    f"takes {self._describe(witness, found)} and {self._describe(source, frame)}; values cross frames through "
                    "Enter and Exit only",
                    fix="bring the outer value in with enter(x, frame_name, is_constant=True), the inner one out with exit(x)",
                )
        kind = node.op
        if found is ANYWHERE and (isinstance(kind, Primitive) or not kind.everywhere or self._reads_later(node)):
            found = 0
        if isinstance(kind, (Exit, NextIteration, LoopCond)) and found == 0:
            raise refuse(
                node,
                f"{_CLASS[type(kind)]} stands outside of every loop: {node.inputs[0].name!r} was not entered",
                fix="values come into a loop with enter(x, frame_name)",
            )
        return found

    def _reads_later(self, node: StepNode) -> bool:
        """Whether it reads a variable, which other runs may write, after something that it waits for: at one time, that is."""
        return bool(node.control) and any(v.node.op.is_variable and v not in self.fed for v in node.inputs)

    def _after(self, node: StepNode) -> int | None:
        frame = self.frame_of[node]
        return self.parents[frame] if isinstance(node.op, Exit) else frame

    def _describe(self, source, frame: int) -> str:
        where = "outside of loops" if frame == 0 else f"in frame {self.names[frame]!r}"
        node = source if isinstance(source, StepNode) else source.node
        return f"{source.name!r} {where} (built at {node.source})"

    def _check_merges(self):
        """A Merge must have an input that can arrive in the first place."""
        reached, known = set(), set(self.nodes)
        changed = True
        while changed:
            changed = False
            for node in self.nodes:
                if node in reached:
                    continue
                ready = [v in self.fed or v.node in reached for v in node.inputs]
                fires = any(ready) if isinstance(node.op, Merge) else all(ready)
                if fires and all(c in reached for c in node.control if c in known):
                    reached.add(node)
                    changed = True
        for node in self.nodes:
            if node not in reached and isinstance(node.op, Merge):
                raise refuse(
                    node,
                    "this Merge can never fire: each of its inputs waits for the Merge itself",
                    fix="a loop variable starts with merge([enter(x, frame_name)])",
                )
        for node in self.nodes:
            if node not in reached:
                raise refuse(node, "this node can never run: it waits for itself")

    def _check_back_edges(self):
        for node in self.nodes:
            for v in node.inputs:
                if v in self.fed or not isinstance(v.node.op, NextIteration):
                    continue
                if not isinstance(node.op, Merge):
                    raise refuse(
                        node,
                        f"takes {v.name!r}, which is there from the second iteration on only",
                        fix="give a NextIteration to close_loop, and use the Merge",
                    )
                frame, own = self.frame_of[v.node], self.frame_of[node]
                if frame != own:
                    raise refuse(
                        node,
                        f"the Merge is in frame {self.names[own]!r} and comes round in frame {self.names[frame]!r}",
                    )

    def _check_fetches(self, fetches):
        for v in fetches:
            frame = self.result_frame(v) if v.node in self.frame_of else 0
            if frame:
                raise refuse(
                    v.node,
                    f"{v.name!r} is fetched, but it is inside frame {self.names[frame]!r} and has many values",
                    fix="fetch exit(x)",
                )

    def _check_loops(self):
        turning = {self.frame_of[n] for n in self.nodes if isinstance(n.op, NextIteration)}
        decided = {self.frame_of[n] for n in self.nodes if isinstance(n.op, LoopCond)}
        for node in self.nodes:
            if isinstance(node.op, NextIteration) and self.frame_of[node] not in decided:
                raise refuse(
                    node,
                    f"the loop in frame {self.names[self.frame_of[node]]!r} has no LoopCond: nothing ends it",
                    fix="switch loop variables by loop_cond(predicate)",
                )
            if isinstance(node.op, Merge) and self.frame_of[node] in decided:
                entering = [v for v in node.inputs if isinstance(v.node.op, Enter)]
                if entering and len(entering) == len(node.inputs):
                    raise refuse(
                        node,
                        "this Merge of a loop takes values that enter but none that comes round: it fires once",
                        fix="close_loop(merge, next_value), or enter(x, frame_name, is_constant=True)",
                    )
            for v in node.inputs:
                source = v.node
                if v in self.fed or not isinstance(source.op, Enter) or source.op.is_constant:
                    continue
                if self.entered(source) in turning and not isinstance(node.op, Merge):
                    raise refuse(
                        node,
                        f"takes {v.name!r}, which is there in the first iteration only (entered at {source.source})",
                        fix="enter it with is_constant=True, or make it a loop variable with merge",
                    )
        exits = {self.frame_of[n] for n in self.nodes if isinstance(n.op, Exit)}
        for node in self.nodes:
            if isinstance(node.op, Enter) and self.entered(node) not in exits:
                raise refuse(
                    node,
                    f"no Exit leads out of frame {node.op.frame_name!r}, so nothing that it computes can be used",
                    fix="fetch exit(x) of a value inside",
                )


_CLASS = {Exit: "an Exit", NextIteration: "a NextIteration", LoopCond: "a LoopCond", Switch: "a Switch"}


def _is_back_edge(node: StepNode, v) -> bool:
    return isinstance(node.op, Merge) and isinstance(v.node.op, NextIteration)


def refuse(node: StepNode, problem: str, fix: str | None = None) -> ValueRangeError:
    return ValueRangeError(node.op.name, f"{problem}\n  in {node.name!r}", fix, node.source)
