"""ClusterSpec: jobs and how many tasks each has, or where they are."""

from __future__ import annotations

from collections.abc import Mapping

from tandem.devices import named
from tandem.errors import DTypeError, ValueRangeError


def task_name(job: str, index: int) -> str:
    return f"/job:{job}/task:{index}"


def parse_task(name: str) -> tuple[str, int]:
    """("worker", 3) of "/job:worker/task:3", or of a device of it."""
    device = named(name)
    if device.job is None:
        raise ValueRangeError(None, f"{name!r} names no task", fix='write "/job:worker/task:0"')
    return device.job, device.task or 0


class ClusterSpec:
    """Jobs of a cluster: {"ps": 2, "worker": 3}, or with addresses, {"ps": ["host:port", ...]}, or {"ps": {1: "host:port"}}.

    >>> spec = td.distributed.ClusterSpec({"ps": 1, "worker": 2})
    >>> spec.tasks
    ['/job:ps/task:0', '/job:worker/task:0', '/job:worker/task:1']
    """

    def __init__(self, cluster):
        if isinstance(cluster, ClusterSpec):
            cluster = cluster.as_dict()
        if not isinstance(cluster, Mapping) or not cluster:
            raise DTypeError("ClusterSpec", f"{cluster!r} is no dict of jobs", fix='write {"ps": 2, "worker": 3}')
        self._jobs: dict[str, dict[int, str | None]] = {}
        for job, tasks in cluster.items():
            if not isinstance(job, str) or not job.isidentifier():
                raise ValueRangeError("ClusterSpec", f"{job!r} is no name of a job", fix='use a word, such as "worker"')
            if isinstance(tasks, bool):
                raise ValueRangeError("ClusterSpec", f"job {job!r} has {tasks!r} tasks")
            if isinstance(tasks, int):
                found = dict.fromkeys(range(tasks))
            elif isinstance(tasks, str):
                found = {0: tasks}
            elif isinstance(tasks, Mapping):
                found = {int(k): v for k, v in tasks.items()}
            else:
                found = dict(enumerate(tasks))
            if not found:
                raise ValueRangeError("ClusterSpec", f"job {job!r} has no tasks")
            self._jobs[job] = found

    @property
    def jobs(self) -> list[str]:
        return list(self._jobs)

    @property
    def tasks(self) -> list[str]:
        """Names of all tasks."""
        return [task_name(job, index) for job, tasks in self._jobs.items() for index in tasks]

    def num_tasks(self, job: str) -> int:
        return len(self._tasks(job))

    def task_indices(self, job: str) -> list[int]:
        return sorted(self._tasks(job))

    def task_address(self, job: str, index: int) -> str | None:
        return self._tasks(job)[index]

    def job_tasks(self, job: str) -> list:
        """Addresses of a job's tasks, in order."""
        tasks = self._tasks(job)
        return [tasks.get(k) for k in range(max(tasks) + 1)]

    def as_dict(self) -> dict:
        """Numbers of tasks, or their addresses."""
        made: dict = {}
        for job, tasks in self._jobs.items():
            whole = list(tasks) == list(range(len(tasks)))
            if whole and all(a is None for a in tasks.values()):
                made[job] = len(tasks)
            else:
                made[job] = list(tasks.values()) if whole else dict(tasks)
        return made

    def _tasks(self, job: str) -> dict:
        if job not in self._jobs:
            raise ValueRangeError("ClusterSpec", f"there is no job {job!r}; there are {', '.join(self._jobs)}")
        return self._jobs[job]

    def __contains__(self, task: str) -> bool:
        job, index = parse_task(task)
        return index in self._jobs.get(job, ())

    def __eq__(self, other):
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    __hash__ = None

    def __repr__(self):
        return f"ClusterSpec({self.as_dict()!r})"
