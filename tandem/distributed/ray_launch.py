"""launch(fn, workers): a function on ranks that Ray starts, on as many machines as its cluster has. One host needs none of this.

Ray places the processes, all or none, and says when one has died. All else is as ever: ranks meet at a key-value service, which
runs in the program that calls launch, and talk by shared memory where all are on one host, or by MPI (mpi.py).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import runpy
import sys
import traceback
from collections import Counter

from tandem import _runtime
from tandem.distributed import group
from tandem.distributed.cluster.ray_engine import _ray
from tandem.distributed.store import Service
from tandem.errors import DistributedError, UnsupportedError, ValueRangeError

_PLACED_WITHIN = 120.0  # seconds


class _Worker:
    """What runs in an actor: one rank."""

    def node(self) -> str:
        return _ray().get_runtime_context().get_node_id()

    def run(self, place: dict[str, str], threads: int | None, timeout: float, fn, args, kwargs):
        """(True, what fn gave) or (False, (whether another rank failed first, text))."""
        os.environ.update(place)
        if threads is not None:
            _runtime.set_num_threads(threads)
        try:
            group.init_process_group(timeout=timeout)
            made = fn(*args, **kwargs)
            if group.is_initialized():  # fn may have ended it
                group.destroy_process_group()
            return True, made
        except BaseException as error:
            if group.current() is not None:
                group.current().leave(group.describe_failure(error))
            return False, (isinstance(error, DistributedError), traceback.format_exc())


def launch(
    fn, workers: int, args=(), kwargs=None, *, resources: dict[str, float] | None = None, address: str | None = None,
    timeout: float | None = None, max_restarts: int = 0,
) -> list:  # fmt: skip
    """See spawning.launch."""
    if not isinstance(workers, int) or workers < 1:
        raise ValueRangeError("launch", f"workers={workers!r} must be a positive number of ranks")
    if importlib.util.find_spec("ray") is None:
        raise UnsupportedError(
            "launch", "ranks on many machines are started by Ray, which is not installed",
            fix='pip install "tandem-dl[distributed]", or td.distributed.spawn on one host',
        )  # fmt: skip
    ray = _ray()
    began = not ray.is_initialized()
    if began:
        ray.init(address=address, configure_logging=False, include_dashboard=False)
    seconds = group.DEFAULT_TIMEOUT if timeout is None else timeout
    try:
        for attempt in range(max_restarts + 1):
            try:
                return _attempt(
                    ray, (fn, tuple(args), dict(kwargs or {})), workers, resources or {"CPU": 1}, seconds, attempt
                )
            except DistributedError as error:
                if attempt == max_restarts:
                    raise
                print(
                    f"tandem: {error}\ntandem: all ranks start again ({attempt + 1} of {max_restarts})", file=sys.stderr
                )
    finally:
        if began:
            ray.shutdown()


def _attempt(ray, call, workers: int, resources: dict[str, float], timeout: float, attempt: int) -> list:
    bundle = dict(resources)
    placed = ray.util.placement_group([bundle] * workers, strategy="PACK")
    service = Service(0, "0.0.0.0")
    actors: list = []
    try:
        if not placed.wait(_PLACED_WITHIN):
            raise DistributedError(
                "launch", f"{workers} ranks with {bundle} each cannot be placed; Ray has {ray.available_resources()}",
                fix="ask for less, or add machines",
            )  # fmt: skip
        others = {k: v for k, v in bundle.items() if k not in ("CPU", "GPU")}
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        actors += [
            ray.remote(_Worker)
            .options(
                num_cpus=bundle.get("CPU", 0), num_gpus=bundle.get("GPU", 0), resources=others,
                scheduling_strategy=strategy(placed, placement_group_bundle_index=rank),
            )
            .remote()
            for rank in range(workers)
        ]  # fmt: skip
        nodes = ray.get([a.node.remote() for a in actors], timeout=_PLACED_WITHIN)
        store = f"{ray.util.get_node_ip_address()}:{service.address.rpartition(':')[2]}"
        threads = max(1, int(bundle["CPU"])) if bundle.get("CPU") else None
        seen: Counter = Counter()
        waiting = {}
        for rank, (actor, node) in enumerate(zip(actors, nodes, strict=True)):
            place = {
                "RANK": str(rank), "WORLD_SIZE": str(workers), "LOCAL_RANK": str(seen[node]),
                "LOCAL_WORLD_SIZE": str(nodes.count(node)), "TANDEM_STORE": store, "TORCHELASTIC_RESTART_COUNT": str(attempt),
            }  # fmt: skip
            seen[node] += 1
            waiting[actor.run.remote(place, threads, timeout, *call)] = rank
        return _collect(ray, waiting, service, workers)
    finally:
        for actor in actors:
            with contextlib.suppress(Exception):  # it may be dead already
                ray.kill(actor, no_restart=True)
        ray.util.remove_placement_group(placed)
        service.close()


def _collect(ray, waiting: dict, service: Service, workers: int) -> list:
    """What ranks gave; or the failure of the one that failed by itself, not because another did."""
    made: dict[int, object] = {}
    failures: list[tuple[bool, int, str]] = []
    while waiting:
        ready, _ = ray.wait(list(waiting), timeout=None if not failures else 5.0)
        if not ready:
            break
        for reference in ready:
            rank = waiting.pop(reference)
            try:
                right, value = ray.get(reference)
            except ray.exceptions.RayError as error:
                right, value = False, (False, f"its process has ended: {type(error).__name__}")
                service.state.bump(f"rank {rank} failed ({value[1]})")  # who waits for it at the service is told
            if right:
                made[rank] = value
            else:
                failures.append((value[0], rank, value[1]))
    if not failures:
        return [made[rank] for rank in range(workers)]
    _, rank, text = min(failures)
    raise DistributedError("launch", f"rank {rank} of {workers} failed:\n{text}")


def run_program(options, count: int) -> int:
    """tandem run --ray."""
    resources = {"CPU": 1.0}
    try:
        launch(_program, count, (options.module, options.program, options.arguments), resources=resources,
               address=options.ray_address, max_restarts=options.max_restarts)  # fmt: skip
        return 0
    except DistributedError as error:
        print(f"tandem: {error}", file=sys.stderr)
        return 1


def _program(module: bool, program: str, arguments: list[str]):
    group.destroy_process_group()  # the program begins it itself
    sys.argv = [program, *arguments]
    if module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
        runpy.run_path(program, run_name="__main__")
