"""tune: what properties of a machine do not decide is measured on it, and kept.

Whether matrix products are quicker by our own code or by oneDNN depends on the processor (Note [Choice of products] in
src/library/product_choice.h). The first program that has a product of some kind measures it, for a few milliseconds, before it
runs; `tandem tune` measures all of them with more care. Convolutions have several ways, and are measured one by one as they are met
(Note [Choice of convolutions] in src/library/conv_choice.h). What was found is kept in files under the cache folder, by machine.

Note [Trust in measurements]
A machine may be busy while it is measured. Both ways take turns, and of each the least time counts: other work makes a run longer,
never shorter. So measurements of several processes are joined by taking the least again, and no single one decides for ever: a
kind is settled by two quiet measurements, made by different processes, or by four noisy ones. A measurement is quiet if the two
least times of each way are nearly the same; on a busy machine they are not.
"""

from __future__ import annotations

import atexit
import functools
import os
import time
from _blake2 import blake2b
from typing import NamedTuple

from tandem import _runtime
from tandem.machine import disk_cache
from tandem.switches import cache_dir

# In the order of ProductKind in src/library/product_choice.h.
KINDS = ("never", "batched", "transposed", "few_rows", "wide", "colliding", "large", "tall", "other")
WAYS = ("winograd", "pointwise", "depthwise", "onednn_first", "onednn_last")  # ConvWay in src/library/conv_choice.h
WORTH = 1 << 21  # multiplications of a product that are worth a measurement
BUDGET = 0.25  # seconds that a process spends on them unasked
FIRST_STEPS = 0.06  # seconds that first steps wait for measurements of convolutions
AT_EXIT = 0.01  # of the time that a process ran, which it spends on the rest of them when it ends; BUDGET at most
MARGIN = 1.1  # by how much one must be quicker than the other to take the place of what the instruction set suggests
RUNS = 5
QUIET = 1.05  # by how much the second of the least times may be longer than the first
SETTLED = 4  # trust with which a kind is not measured again
FORMAT = b"tandem products 2\n"
CONVOLUTIONS = b"tandem convolutions 1\n"


class Finding(NamedTuple):
    """What is known of a kind: the least seconds of a typical product by us and by oneDNN, and how much that is to be trusted."""

    own: float
    onednn: float
    trust: int

    def joined(self, other: Finding | None) -> Finding:
        """See Note [Trust in measurements]."""
        if other is None:
            return self
        return Finding(min(self.own, other.own), min(self.onednn, other.onednn), self.trust + other.trust)


_known: dict[str, dict[str, Finding]] = {}  # by file and kind
_measured: set[tuple[str, str]] = set()  # files and kinds, by this process
_convolutions: set[str] = set()  # files that were read
_began = time.perf_counter()
_spent = 0.0


def prepare_products(batch: int, m: int, n: int, k: int, a: tuple, b: tuple):
    """A program will multiply such matrices, whose rows and columns have these strides: has ready who computes it."""
    global _spent
    path = _path()
    known = load()
    if batch * m * n * k < WORTH or _runtime.blas_backend() != "onednn" or _runtime.deterministic():
        return
    kind = KINDS[_runtime.product_kind(batch, m, n, k, a, b)]
    if kind == "never" or (path, kind) in _measured or _spent >= BUDGET:
        return
    before = known.get(kind)
    if before is not None and before.trust >= SETTLED:
        return
    _measured.add((path, kind))
    started = time.perf_counter()
    known[kind] = measure(kind, RUNS).joined(before)
    _spent += time.perf_counter() - started
    _runtime.prefer_products(KINDS.index(kind), prefers_own(kind, known[kind]))
    _save(path, known)


def measure(kind: str, runs: int) -> Finding:
    """Of one measurement: worth half of what settles a kind if it was quiet, a quarter if not."""
    own, onednn = (sorted(times) for times in _runtime.time_products(KINDS.index(kind), runs))
    quiet = all(times[1] <= times[0] * QUIET for times in (own, onednn))
    return Finding(own[0], onednn[0], SETTLED // 2 if quiet else SETTLED // 4)


def prefers_own(kind: str, found: Finding) -> bool:
    """Whether our own code computes products of a kind."""
    return found.own <= found.onednn * (MARGIN if _suggests_own(KINDS.index(kind)) else 1 / MARGIN)


def tune(runs: int = 20, attempts: int = 8) -> dict[str, tuple[bool, float, float]]:
    """Measures all kinds of products, and keeps what was found for processes that start from now on: by kind, whether our own code
    is preferred, and the seconds of a typical product by us and by oneDNN. Goes on while other work disturbs it, up to some
    attempts; what is not settled by then, later programs measure again."""
    known = {}
    for kind in KINDS[1:]:
        found = measure(kind, runs)
        for _ in range(attempts - 1):
            if found.trust >= SETTLED:
                break
            found = measure(kind, runs).joined(found._replace(trust=min(found.trust, SETTLED // 2)))
        known[kind] = found
    _known[_path()] = known
    _save(_path(), known)
    return {kind: (prefers_own(kind, found), found.own, found.onednn) for kind, found in known.items()}


def prepare_convolutions():
    """A program has convolutions: has ready what earlier processes measured of them, and keeps what this one will."""
    path = _path()
    if not path or path in _convolutions:
        return
    if not _convolutions:
        atexit.register(keep_convolutions)
        _runtime.set_convolution_budget(min(FIRST_STEPS, BUDGET))
    _convolutions.add(path)
    for key, (seconds, trust) in _read_convolutions(path).items():
        _runtime.know_convolution(key, seconds, trust)


def keep_convolutions():
    """Measures what first steps had no time for, as far as that is nothing beside what the process ran, and adds what it measured
    of convolutions to what is on disk."""
    path = _path()
    if path:
        _runtime.measure_waiting_convolutions(min(BUDGET, AT_EXIT * (time.perf_counter() - _began)))
    found = {key: (seconds, trust) for key, seconds, trust in _runtime.convolutions_found()}
    if path and found:
        lines = (
            f"{key} {trust} {' '.join(map(repr, seconds))}\n"
            for key, (seconds, trust) in (_read_convolutions(path) | found).items()
        )
        disk_cache.write(path + ".convolutions", CONVOLUTIONS, "".join(lines).encode())


def _read_convolutions(path: str) -> dict[str, tuple[list[float], int]]:
    content = disk_cache.read(path + ".convolutions", CONVOLUTIONS)
    lines = [line.split() for line in (content or b"").decode().splitlines()]
    return {key: ([float(s) for s in seconds], int(trust)) for key, trust, *seconds in lines}


def load() -> dict[str, Finding]:
    """What was measured on this machine before; the library follows it from now on."""
    path = _path()
    known = _known.get(path)
    if known is None:
        known = _known[path] = _read(path)
        for kind, found in known.items():
            _runtime.prefer_products(KINDS.index(kind), prefers_own(kind, found))
    return known


def _read(path: str) -> dict[str, Finding]:
    content = disk_cache.read(path, FORMAT) if path else None
    lines = [line.split() for line in (content or b"").decode().splitlines()]
    return {kind: Finding(float(own), float(onednn), int(trust)) for kind, own, onednn, trust in lines}


def _suggests_own(number: int) -> bool:
    return _runtime.suggests_own_products(number)


def _path() -> str:
    return machine_file("machine")


def machine_file(name: str) -> str:
    """The file in a folder of this name for this processor, its instructions and threads in use; "" where nothing is kept."""
    folder = cache_dir()
    if not folder:
        return ""
    described = f"{_processor()} {_runtime.library_isa()} {_runtime.num_threads()}"
    return os.path.join(folder, name, blake2b(described.encode(), digest_size=8).hexdigest())


@functools.cache
def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            return next((line.strip() for line in f if line.startswith(("model name", "CPU part"))), "")
    except OSError:
        return ""


def _save(path: str, known: dict[str, Finding]):
    if path:
        lines = (f"{kind} {found.own!r} {found.onednn!r} {found.trust}\n" for kind, found in known.items())
        disk_cache.write(path, FORMAT, "".join(lines).encode())
