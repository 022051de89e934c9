"""replica_device_setter: variables on parameter servers in turn, everything else on a worker."""

from __future__ import annotations

from tandem.distributed.cluster.spec import ClusterSpec
from tandem.errors import ValueRangeError


def replica_device_setter(ps_tasks: int = 0, ps_device: str = "/job:ps", worker_device: str = "/job:worker", merge_devices=True,
                          cluster=None, ps_ops=None, ps_strategy=None):  # fmt: skip
    """A function for td.device: variables go to the servers, one after the other, and what else is built to the worker.

    cluster: a ClusterSpec, Cluster or dict, which says how many servers there are; else ps_tasks does. Without servers nothing is
    placed, and the function is None. ps_ops: names of operations that go to servers, variables unless given. ps_strategy(node): the
    number of the server for one. merge_devices is accepted: a device without a job is always one of the task around.

    >>> with td.Graph(), td.device(td.distributed.replica_device_setter(2, worker_device="/job:worker/task:1")):
    ...     a, b = td.Variable(1.0), td.Variable(2.0)
    ...     [str(x.device) for x in (a, b, a + b)]
    ['/job:ps/task:0/device:cpu', '/job:ps/task:1/device:cpu', '/job:worker/task:1/device:cpu']
    """
    if cluster is not None:
        spec = ClusterSpec(getattr(cluster, "spec", cluster))
        job = ps_device.removeprefix("/job:").partition("/")[0]
        ps_tasks = spec.num_tasks(job) if job in spec.jobs else 0
    if isinstance(ps_tasks, bool) or not isinstance(ps_tasks, int) or ps_tasks < 0:
        raise ValueRangeError("replica_device_setter", f"ps_tasks is {ps_tasks!r}; it is a number of servers")
    if not ps_tasks:
        return None
    names = {"variable"} if ps_ops is None else set(ps_ops)
    count = 0

    def device(node) -> str:
        nonlocal count
        if node.op.name not in names:
            return worker_device
        if ps_strategy is not None:
            return f"{ps_device}/task:{ps_strategy(node)}"
        count += 1
        return f"{ps_device}/task:{(count - 1) % ps_tasks}"

    return device
