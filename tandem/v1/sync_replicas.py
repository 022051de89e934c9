"""SyncReplicasOptimizer: synchronous steps of several replicas through queues, with backup replicas.

Note [Steps through queues]
Every device that has variables has a queue of gradients. A replica's training operation puts in rows (step, replica, gradients) and
then waits for a permit; so it is one run, and its gradients go straight to the servers. The chief takes rows out: those of the
present step, one a replica, are added up on the server; others came too late or twice, and are dropped. When each server has
`replicas_to_aggregate` of them, the mean is applied there, the step is counted, and as many permits are given, which say which step
is next. What was dropped gives its permit back at once, so that there is one for every push and nobody waits for ever.
"""

from __future__ import annotations

import contextlib
import secrets
import threading

import tandem as _td
from tandem.errors import CancelledError, QueueClosedError, TaskError, UnsupportedError, ValueRangeError
from tandem.session import queues as _queues
from tandem.session.build import Variable, as_tensor, assign, assign_add, control_dependencies, group, identity
from tandem.v1.train import Optimizer

_PREFIX = "sync_replicas"


class SyncReplicasOptimizer(Optimizer):
    """An optimiser whose steps take the mean of the gradients of several replicas.

    opt: the optimiser that makes the step, with the mean; replicas_to_aggregate: how many gradients a step takes, the first that
    come; total_num_replicas: how many replicas there are; those beyond replicas_to_aggregate are backups

    Each replica builds the graph and runs the training operation; one of them, the chief, runs `get_chief_queue_runner()` besides.
    """

    def __init__(self, opt, replicas_to_aggregate, total_num_replicas=None, variable_averages=None, variables_to_average=None,
                 use_locking=False, name="sync_replicas"):  # fmt: skip
        total = replicas_to_aggregate if total_num_replicas is None else total_num_replicas
        if not 1 <= replicas_to_aggregate <= total:
            raise ValueRangeError(
                "SyncReplicasOptimizer",
                f"replicas_to_aggregate={replicas_to_aggregate} must lie between 1 and total_num_replicas={total}",
                fix="a replica counts once in a step; start more of them",
            )
        if variable_averages is not None:
            raise UnsupportedError(
                "SyncReplicasOptimizer", "variable_averages is not offered", fix="average in an op of your own"
            )
        self._opt, self._needed, self._total, self._name = opt, int(replicas_to_aggregate), int(total), name
        self._runner: ChiefRunner | None = None
        self.replica = secrets.randbits(31)

    def minimize(self, loss, global_step=None, var_list=None, name=None):
        """The training operation of this replica."""
        return self.apply_gradients(self.compute_gradients(loss, var_list), global_step, name)

    def compute_gradients(self, loss, var_list=None):
        return self._opt.compute_gradients(loss, var_list)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """The training operation of this replica: hands its gradients in, and ends when it may begin another step."""
        if global_step is None:
            raise ValueRangeError("SyncReplicasOptimizer", "a global_step is needed, by which late gradients are known")
        pairs = [(g, v) for g, v in grads_and_vars if g is not None]
        servers = _by_device(pairs)
        graph = global_step.graph
        with graph, _on(graph, global_step):
            permits = _queues.FIFOQueue(max(self._total, 1), _td.int64, (), name=f"{self._name}/permits")
        self.local_step = Variable(_td.tensor(0), trainable=False, name=f"{self._name}/local_step_{self.replica}")
        step = identity(self.local_step).astype(_td.int64)
        pushed, takes = [], []
        for number, (device, members) in enumerate(servers):
            with _device(graph, device):
                queue = _queues.FIFOQueue(
                    4 * self._total, [_td.int64, _td.int64, *(v.dtype for _, v in members)],
                    [(), (), *(tuple(v.shape) for _, v in members)], name=f"{self._name}/gradients_{number}",
                )  # fmt: skip
                who = as_tensor(graph, _td.tensor(self.replica))
                pushed.append(queue.enqueue([step, who, *(g for g, _ in members)]))
                takes.append(self._server(queue, number, members))
        with control_dependencies(pushed):
            permit = permits.dequeue()
        now = assign(self.local_step, permit)
        self.local_step_init_op = group(assign(self.local_step, identity(global_step).astype(_td.int64)))
        self._chief(graph, takes, global_step, permits)
        return group(now, name=name or self._name)

    def _server(self, queue, number: int, members: list) -> _Server:
        """What the chief runs on one server: take a row, add it or drop it, apply the sum."""
        held = _queues.FIFOQueue(1, queue.dtypes, queue.shapes, name=f"{self._name}/held_{number}")
        row = queue.dequeue()
        with control_dependencies([held.enqueue(row)]):
            step, who = identity(row[0]), identity(row[1])
        sums = [
            Variable(_td.zeros(tuple(v.shape), dtype=v.dtype), trainable=False, name=f"{self._name}/sum_of_{v.op.name}")
            for _, v in members
        ]
        taken = held.dequeue()
        add = group(*(assign_add(s, g) for s, g in zip(sums, taken[2:], strict=True)))
        dropped = held.dequeue()
        return _Server(step, who, add, dropped[0].op, list(zip(sums, [v for _, v in members], strict=True)))

    def _chief(self, graph, servers: list[_Server], global_step, permits):
        pairs = [(identity(s) / float(self._needed), v) for server in servers for s, v in server.sums]
        applied = self._opt.apply_gradients(pairs)
        with control_dependencies([applied]):
            cleared = [assign(s, _td.zeros_like(s)) for server in servers for s, _ in server.sums]
        with control_dependencies([c.op for c in cleared]):
            counted = assign_add(global_step, 1)
        permitted = _td.session.placeholder(_td.int64, (None,), name=f"{self._name}/permitted")
        with _on(graph, global_step):
            give = permits.enqueue_many(permitted)
        self._runner = ChiefRunner(self, servers, group(counted), global_step, give, permitted)

    # -- what TensorFlow's has

    def get_chief_queue_runner(self) -> ChiefRunner:
        """What the chief runs: `runner.create_threads(session, coordinator, start=True)`."""
        if self._runner is None:
            raise ValueRangeError(
                "get_chief_queue_runner", "there is no training operation yet", fix="call minimize() first"
            )
        return self._runner

    def get_init_tokens_op(self, num_tokens=-1):
        """An operation for the beginning, which nothing needs here: permits are given for pushes."""
        return _td.session.no_op("init_tokens")

    @property
    def chief_init_op(self):
        return self.local_step_init_op


class _Server:
    def __init__(self, step, who, add, drop, sums):
        self.step, self.who, self.add, self.drop, self.sums = step, who, add, drop, sums


class ChiefRunner:
    """Takes gradients and makes steps, until its session or the coordinator ends. dropped: how many gradients came too late"""

    def __init__(self, optimizer, servers, apply, global_step, give, permitted):
        self.needed, self.servers, self.apply, self.global_step = optimizer._needed, servers, apply, global_step
        self.give, self.permitted = give, permitted
        self.applied = self.dropped = 0

    def create_threads(self, sess, coord=None, daemon=True, start=False):
        thread = threading.Thread(target=self.run, args=(sess, coord), daemon=daemon, name="tandem sync replicas")
        if coord is not None:
            coord.register_thread(thread)
        if start:
            thread.start()
        return [thread]

    def run(self, session, coordinator=None):
        """Steps, one after another."""
        try:
            step = int(session.run(self.global_step))
            while coordinator is None or not coordinator.should_stop():
                for server in self.servers:
                    self._collect(session, server, step)
                session.run(self.apply)
                step, self.applied = step + 1, self.applied + 1
                self._permit(session, step, self.needed)
        except (QueueClosedError, CancelledError, TaskError) as error:
            if coordinator is not None:
                coordinator.request_stop(error)
        except BaseException as error:
            if coordinator is None:
                raise
            coordinator.request_stop(error)

    def _collect(self, session, server: _Server, step: int):
        seen: set[int] = set()
        while len(seen) < self.needed:
            of, who = (int(x) for x in session.run([server.step, server.who]))
            if of == step and who not in seen:
                session.run(server.add)
                seen.add(who)
            else:
                session.run(server.drop)
                if server is self.servers[0]:  # a push is one row on every server
                    self.dropped += 1
                    self._permit(session, step, 1)

    def _permit(self, session, step: int, count: int):
        session.run(self.give, {self.permitted: [step] * count})


def _by_device(pairs: list) -> list[tuple]:
    found: dict = {}
    for g, v in pairs:
        device = v.op.device
        found.setdefault(str(device), (device, []))[1].append((g, v))
    return list(found.values())


def _device(graph, device):
    return contextlib.nullcontext() if device is None else graph.device(device)


def _on(graph, variable):
    return _device(graph, variable.op.device)
