"""Which task each node of a run is on.

Note [Placing on tasks]
    device scope    the job and task that a node's device names
    state           what writes a variable is where the variable is; an operation on a queue is where the queue was made,
                    whatever scope it stands in
    the others      where the first of their operands is that has a place; if none has, where the first node is that reads them;
                    and else on the cluster's first worker

A node whose scope says another task than its state is an error that names both lines; so is a task that there is not. Soft
placement follows the state, and takes the first worker for a task that is missing. Placeholders and constants are on every task
that reads them. A program may decide all of it: `Session(target=cluster, placer=function)`, where function(nodes, placement)
gives a dict of nodes and names of tasks for those that no scope binds.
"""

from __future__ import annotations

from tandem.distributed.cluster.spec import ClusterSpec, task_name
from tandem.errors import DeviceError
from tandem.session.graph import StepNode
from tandem.session.nodes import Fed
from tandem.session.program import written_by
from tandem.session.queues import QueueOp


def is_anywhere(node: StepNode) -> bool:
    """Whether every task has it: what is fed, constants."""
    return isinstance(node.op, Fed) and not node.op.is_variable


class Placement(dict):
    """Node -> name of its task. Those that are anywhere have none."""

    def __init__(self, nodes: list[StepNode], spec: ClusterSpec, default: str, soft: bool = False, placer=None):
        super().__init__()
        self.spec, self.default, self.soft = spec, default, soft
        self._known = set(spec.tasks)
        nodes = [n for n in nodes if not is_anywhere(n)]
        for node in nodes:
            if node.device is not None and node.device.job is not None:
                self[node] = self._named(node)
        for node in nodes:
            if isinstance(node.op, Fed):
                self.setdefault(node, None)
        if placer is not None:
            free = [n for n in nodes if self.get(n) is None]
            for node, task in placer(free, self).items():
                if node in free and task is not None:
                    self[node] = task_name_of(task)
        for node in nodes:
            if isinstance(node.op, Fed) and self[node] is None:
                self[node] = self._beside(node) or default
        for node in nodes:
            self._with_state(node)
        for node in nodes:
            if node not in self:
                self._with_operands(node)
        for node in reversed(nodes):
            if node in self:
                for source in (*(v.node for v in node.inputs), *node.control):
                    if source not in self and not is_anywhere(source):
                        self[source] = self[node]
        for node in nodes:
            self.setdefault(node, default)
        if not soft:
            self._check_beside(nodes)

    def _named(self, node: StepNode) -> str:
        name = task_name(node.device.job, node.device.task or 0)
        if name in self._known:
            return name
        if self.soft:
            return self.default
        raise DeviceError(
            node.op.name,
            f"{node.name!r} is to run on {name}, which the cluster does not have; it has {', '.join(self.spec.tasks)}",
            fix="name one of those, or use td.Session(graph, target=cluster, soft_placement=True)",
            source=node.source,
        )

    def _with_state(self, node: StepNode):
        """What changes a variable or a queue is where that is."""
        if isinstance(node.op, QueueOp):
            self[node] = self._of_queue(node)
            return
        state = [(v.node, self.get(v.node), f"variable {v.node.name!r}") for v in written_by(node)]
        if not state:
            return
        owner, task, text = state[0]
        for other, elsewhere, other_text in state[1:]:
            if elsewhere != task:
                raise contradiction(
                    node, f"it writes {text}, which is on {task}, and {other_text} on {elsewhere}", owner, other
                )
        if self.get(node, task) != task and not self.soft:
            raise contradiction(node, f"it is bound to {self[node]}, and {text} is on {task}", owner)
        self[node] = task

    def _of_queue(self, node: StepNode) -> str:
        queue = node.op.queue
        if queue.device is None or queue.device.job is None:
            return self.default
        task = task_name(queue.device.job, queue.device.task or 0)
        if task not in self._known and not self.soft:
            raise DeviceError(
                node.op.name, f"queue {queue.name!r} is on {task}, which the cluster does not have", source=node.source
            )
        return task if task in self._known else self.default

    def _beside(self, node: StepNode) -> str | None:
        """The task of the node that it was built to be with, be that one needed or not."""
        while node.beside is not None:
            node = node.beside
            if self.get(node) is not None:
                return self[node]
            if node.device is not None and node.device.job is not None:
                return self._named(node)
        return None

    def _check_beside(self, nodes: list[StepNode]):
        for node in nodes:
            other = node.beside
            if other in self and self[other] != self[node]:
                problem = f"it is to be where {other.name!r} is, on {self[other]}, and is on {self[node]}"
                raise contradiction(node, problem, other)

    def _with_operands(self, node: StepNode):
        task = self._beside(node)
        if task is not None:
            self[node] = task
            return
        for v in node.inputs:
            if v.node in self:
                self[node] = self[v.node]
                return
        for other in node.control:
            if other in self:
                self[node] = self[other]
                return


def task_name_of(task: str) -> str:
    return task.partition("/device:")[0]


def contradiction(node: StepNode, problem: str, *owners) -> DeviceError:
    lines = [f"{node.name!r} was built at {node.source}"]
    lines += [f"{o.name!r} was built at {o.source}" for o in owners]
    return DeviceError(
        node.op.name,
        f"{node.name!r} cannot be placed: {problem}\n  " + "\n  ".join(lines),
        fix="build it under td.colocate_with(variable), or give both the same device; soft_placement=True follows the state",
        source=node.source,
    )
