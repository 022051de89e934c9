"""What this host and the ranks of a group reach: the numbers of a Topology, measured in about a second."""

from __future__ import annotations

import math
import os
import time

import tandem.ops as F
from tandem.autograd.modes import no_grad
from tandem.distributed.automatic.op_times import OpTimes, caches, call_time
from tandem.distributed.collectives import barrier, irecv, isend
from tandem.distributed.functional import all_reduce
from tandem.distributed.group import ProcessGroup, group_of
from tandem.distributed.topology import DeviceModel, Link, Topology
from tandem.tensors.constructors import empty, ones, tensor

_SIDE = 512  # of a product that runs at full speed
_LARGE, _SMALL = 1 << 23, 64  # elements: more than caches hold, and a few
_WINDOW = 0.05  # seconds


def measured(group: ProcessGroup | None = None, repeats: int = 5, operators: bool = True) -> Topology:
    """A Topology of the ranks of a group, on one host: rates of products and of memory, bandwidth and latency between them.

    All ranks must call it; all get the same numbers, those of the slowest rank.

    operators: whether td.parallelize measures the operators of a step, too, on parts of the sizes that plans have; times are kept
        by machine under the cache folder

    >>> td.distributed.init_process_group()
    >>> td.distributed.measured().device.operations > 1e6
    True
    >>> td.distributed.destroy_process_group()
    """
    group = group_of(group, "measured")
    n = group.size()
    with no_grad():
        a, x = ones(_SIDE, _SIDE), ones(_LARGE)
        product, pass_over = lambda: F.matmul(a, a), lambda: x + 1.0
        alone = copy_alone = 0.0
        for rank in range(n):  # one after the other
            if rank == group.rank():
                alone = min(_seconds(product, 1) for _ in range(repeats))
                copy_alone = min(_seconds(pass_over, 1) for _ in range(repeats))
            barrier(group)
        # All at once, for longer than the system leaves a processor to one of them.
        many = max(repeats, int(_WINDOW / alone))
        many = int(all_reduce(tensor(float(many)), "max", group).item())
        meet = lambda: all_reduce(F.matmul(a, a)[0, :_SMALL].contiguous(), group=group)
        found = [
            alone, _seconds(product, many), _seconds(meet, many), _seconds(pass_over, repeats),
            _seconds(lambda: all_reduce(x, group=group), repeats),
            _seconds(lambda: all_reduce(ones(_SMALL), group=group), 10 * repeats), _seconds(lambda: a[0] + 1.0, repeats),
            copy_alone, call_time() + (_seconds(lambda: _pass_round(a[:1], group), 4 * repeats) if n > 1 else 0.0),
        ]  # fmt: skip
        found = all_reduce(tensor(found), "max", group).tolist()
        alone, together, met, copy, large, small, launch, copy_alone, action = found
    times = OpTimes.of_machine(max(together / alone, 1.0), max(copy / copy_alone, 1.0)) if operators else None
    rates = 2.0 * _SIDE**3 / together, 8.0 * _LARGE / copy
    device = DeviceModel(*rates, _memory(n), launch, times=times, cache=caches() / n, action=action)
    moved = 2 * 4.0 * _LARGE * (n - 1) / n
    bandwidth = moved / max(large - small, 1e-9) if n > 1 else device.bandwidth
    # Ranks that compute meet later than those that only wait for one another, above all where they share processors.
    latency = max(small, met - together) / 2 / max(1.0, math.log2(n))
    link = Link(bandwidth, latency)
    return Topology(1, n, device, link, link)


def _pass_round(x, group: ProcessGroup):
    """Every rank sends to the next one, and receives, as stages do."""
    n, rank = group.size(), group.rank()
    room = empty(x.shape)
    sent = isend(x, group.ranks[(rank + 1) % n], group)
    irecv(room, group.ranks[(rank - 1) % n], group).wait()
    sent.wait()
    return room


def _memory(ranks: int) -> float:
    """Bytes of this host for each rank."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) / ranks


def _seconds(call, repeats: int) -> float:
    """Of a call while other ranks do the same: the mean, as ranks may have to share processors."""
    call().data_ptr()
    start = time.perf_counter()
    for _ in range(repeats):
        call().data_ptr()  # until it is computed
    return (time.perf_counter() - start) / repeats
