"""spawn(fn, n): a function on several ranks, from one program: for notebooks and tests."""

from __future__ import annotations

import contextvars
import multiprocessing
import multiprocessing.connection
import os
import threading
import time
import traceback

from tandem import _runtime
from tandem.distributed import group, load_all
from tandem.distributed.engines import threads
from tandem.distributed.store import Service
from tandem.errors import DistributedError, ValueRangeError
from tandem.multiprocessing.parent import end_with

GRACE = 2.0  # seconds that ranks have to end by themselves after another one has failed: theirs, not those of others
_LONGEST = 30.0  # seconds in all


class Grace:
    """The time that processes have to end by themselves. What they wait for a processor does not count: where many programs run, a
    rank that is ended too early does not say why it ends."""

    def __init__(self, pids):
        self._began = time.monotonic()
        self._queued = {pid: queued(pid) for pid in pids}

    def left(self) -> float:
        elapsed = time.monotonic() - self._began
        waited = max((queued(pid) - before for pid, before in self._queued.items()), default=0.0)
        return min(GRACE - elapsed + max(waited, 0.0), _LONGEST - elapsed)


def queued(pid: int) -> float:
    """Seconds that a process has waited for a processor; 0 if it has ended, or the system does not tell."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def spawn(fn, n: int, args=(), kwargs=None, *, engine: str = "shared_memory", timeout: float | None = None) -> list:
    """Runs fn(*args, **kwargs) on n ranks of a new process group and gives what it returned on each.

    When a rank fails, the others end and its exception is raised here.

    engine: "shared_memory", where ranks are processes: fn and args are pickled, so fn must be at the top level of a module, and the
        caller's own lines be under `if __name__ == "__main__":`. "threads", where ranks are threads of this process
    timeout: how long a collective waits for others, in seconds

    >>> def work():
    ...     x = td.ones(2) * td.distributed.get_rank()
    ...     td.distributed.all_reduce(x)
    ...     return x.tolist()
    >>> td.distributed.spawn(work, 3, engine="threads")
    [[3.0, 3.0], [3.0, 3.0], [3.0, 3.0]]
    """
    if not isinstance(n, int) or n < 1:
        raise ValueRangeError("spawn", f"n={n!r} must be a positive number of ranks")
    if engine not in ("shared_memory", "threads"):
        raise ValueRangeError("spawn", f"engine={engine!r} must be 'shared_memory' or 'threads'")
    run = _spawn_threads if engine == "threads" else _spawn_processes
    return run(fn, n, tuple(args), dict(kwargs or {}), group.DEFAULT_TIMEOUT if timeout is None else timeout)


# -- threads


def _spawn_threads(fn, n: int, args, kwargs, timeout: float) -> list:
    load_all()
    results: list = [None] * n
    failures: list[tuple[int, BaseException]] = []  # in the order in which they happened
    engines = threads(n)
    state = _runtime.default_generator().get_state()

    def run(number: int):
        rank = group.Rank(engines[number], number, n, None, timeout)
        group.enter(rank)
        generator = _runtime.Generator()
        generator.set_state(state)
        _runtime.set_thread_generator(generator)  # as processes have their own
        try:
            results[number] = fn(*args, **kwargs)
        except BaseException as error:
            failures.append((number, error))
            rank.leave(group.describe_failure(error))
        finally:
            rank.close()
            group.enter(None)
            _runtime.set_thread_generator(None)

    context = contextvars.copy_context()
    started = [threading.Thread(target=context.copy().run, args=(run, i), name=f"rank {i}") for i in range(n)]
    for t in started:
        t.start()
    for t in started:
        t.join()
    if failures:
        number, error = next((f for f in failures if not isinstance(f[1], DistributedError)), failures[0])
        error.add_note(f"  (on rank {number} of {n})")
        raise error
    return results


# -- processes


def _spawn_processes(fn, n: int, args, kwargs, timeout: float) -> list:
    service = Service()
    context = multiprocessing.get_context("spawn")
    each = max(1, _runtime.num_threads() // n)
    ranks = []
    try:
        for rank in range(n):
            ours, theirs = context.Pipe(duplex=False)
            place = rank, n, service.address, timeout, each
            process = context.Process(target=_run, args=(fn, args, kwargs, place, theirs), name=f"rank {rank}")
            process.start()
            theirs.close()
            ranks.append((process, ours))
        return _collect(ranks)
    finally:
        end_processes([process for process, _ in ranks])
        service.close()


def _run(fn, args, kwargs, place, results):
    rank, size, address, timeout, each = place
    end_with(multiprocessing.parent_process().pid)
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size), TANDEM_STORE=address
    )
    _runtime.set_num_threads(each)
    try:
        group.init_process_group(timeout=timeout)
        results.send((True, fn(*args, **kwargs)))
        group.destroy_process_group()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BaseException as error:
        if group.current() is not None:
            group.current().leave(group.describe_failure(error))
        results.send((False, (isinstance(error, DistributedError), traceback.format_exc())))
        raise SystemExit(1) from None


def _collect(ranks) -> list:
    """What ranks gave; or the failure of the one that failed by itself, not because another did."""
    made: dict[int, object] = {}
    failures: dict[int, tuple[bool, str]] = {}
    waiting = {ours: rank for rank, (_, ours) in enumerate(ranks)}
    grace = None
    while waiting and (grace is None or grace.left() > 0):
        for ours in multiprocessing.connection.wait(list(waiting), 0.1):
            rank = waiting.pop(ours)
            try:
                right, value = ours.recv()
            except EOFError:
                process = ranks[rank][0]
                process.join()
                right, value = False, (False, f"its process ended with status {process.exitcode}")
            (made if right else failures)[rank] = value
        if failures and grace is None:
            grace = Grace([process.pid for process, _ in ranks])
    if not failures:
        return [made[rank] for rank in range(len(ranks))]
    rank = min(failures, key=lambda r: (failures[r][0], r))
    raise DistributedError("spawn", f"rank {rank} of {len(ranks)} failed:\n{failures[rank][1]}")


def end_processes(processes):
    """Waits for processes a little, then ends them."""
    grace = Grace([p.pid for p in processes])
    for p in processes:
        while p.exitcode is None and (left := grace.left()) > 0:
            p.join(left)
    for p in processes:
        if p.exitcode is None:
            p.terminate()
    for p in processes:
        p.join(GRACE)
        if p.exitcode is None:
            p.kill()
            p.join()


def launch(
    fn, workers: int, args=(), kwargs=None, *, resources=None, address=None, timeout=None, max_restarts: int = 0
) -> list:
    """Runs fn(*args, **kwargs) on so many ranks of a new process group, started by Ray on the machines of its cluster; gives
    what it returned on each. When a rank fails, the others end and its exception is raised here.

    resources: what each rank needs: {"CPU": 2, "GPU": 1}; one CPU unless given
    address: of a Ray cluster ("auto", "host:port"); one of this host, for the length of the call, if Ray has not been begun
    timeout: how long a collective waits for others, in seconds
    max_restarts: how often all ranks are started again after a failure

    Needs Ray: pip install "tandem-dl[distributed]"; and, where ranks are on several hosts, MPI: pip install "tandem-dl[mpi]".
    """
    from tandem.distributed.ray_launch import launch as by_ray  # Ray is heavy

    return by_ray(
        fn, workers, args, kwargs, resources=resources, address=address, timeout=timeout, max_restarts=max_restarts
    )
