"""The link between the ranks of a group, in two numbers that are measured once: for sizes of buckets (Note [Buckets] in ddp.py)."""

from __future__ import annotations

import math
import time

import tandem.ops as F
from tandem.autograd.modes import no_grad
from tandem.distributed.group import ProcessGroup
from tandem.distributed.topology import Link
from tandem.dtypes import float64
from tandem.tensors.constructors import tensor

_SMALL, _LARGE = 16, 1 << 18  # elements: a few, and more than one packet
_REPEATS = 3
_INTERNAL = 1 << 34  # a tag of calls that need no name, as in src/collectives/call.h


def link_of(group: ProcessGroup, device="cpu") -> Link:
    """How long all-reduces of this group's tensors on a device take: a latency, and bytes a second. All ranks must ask for it; all
    get the same numbers, those of the slowest rank, rounded to powers of two."""
    kind = str(device).partition(":")[0]
    if kind not in group.links:
        with no_grad():
            times = [_seconds(group, count, device) for count in (_SMALL, _LARGE)]
            small, large = _reduce(group, tensor(times, dtype=float64), "max").tolist()
        group.links[kind] = Link(_power(4 * _LARGE / max(large - small, 1e-9)), _power(small))
    return group.links[kind]


def _seconds(group: ProcessGroup, count: int, device) -> float:
    """The best of some all-reduces, which all ranks begin at about the same time."""
    best = math.inf
    for _ in range(_REPEATS):
        x = F.full((count,), 1.0, dtype="float32").to(device)
        x.sum().item()  # it is there
        began = time.perf_counter()
        _reduce(group, x, "sum")[0].item()
        best = min(best, time.perf_counter() - began)
    return best


def _reduce(group: ProcessGroup, x, reduction: str):
    return F.all_reduce_coalesced([x], group.token, group.size(), reduction, _INTERNAL)[0]


def _power(x: float) -> float:
    return 2.0 ** round(math.log2(x))
