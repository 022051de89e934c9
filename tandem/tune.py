"""tune: what properties of a machine do not decide is measured on it, and kept.

Whether matrix products are quicker by our own code or by oneDNN depends on the processor (Note [Choice of products] in
src/library/product_choice.h). The first program that has a product of some kind measures it, for a few milliseconds, before it
runs; `tandem tune` measures all of them with more care. What was found is kept in a file under the cache folder, by machine.
"""

from __future__ import annotations

import functools
import os
import time
from _blake2 import blake2b

from tandem import _runtime
from tandem.switches import cache_dir

# In the order of ProductKind in src/library/product_choice.h.
KINDS = ("never", "batched", "transposed", "few_rows", "wide", "colliding", "large", "tall", "other")
WORTH = 1 << 21  # multiplications of a product that are worth a measurement
BUDGET = 0.25  # seconds that a process spends on them unasked
MARGIN = 1.1  # by how much one must be quicker than the other to take the place of what the instruction set suggests
RUNS = 3

_known: dict[str, dict[str, bool]] = {}  # by file: kind -> whether our own code is quicker
_spent = 0.0


def prepare_products(batch: int, m: int, n: int, k: int, a: tuple, b: tuple):
    """A program will multiply such matrices, whose rows and columns have these strides: has ready who computes it."""
    global _spent
    path = _path()
    known = load()
    if batch * m * n * k < WORTH or _runtime.blas_backend() != "onednn" or _runtime.deterministic():
        return
    kind = KINDS[_runtime.product_kind(batch, m, n, k, a, b)]
    if kind == "never" or kind in known or _spent >= BUDGET:
        return
    started = time.perf_counter()
    known[kind] = measure(kind, RUNS)[0]
    _spent += time.perf_counter() - started
    _runtime.prefer_products(KINDS.index(kind), known[kind])
    _save(path, known)


def measure(kind: str, runs: int) -> tuple[bool, float, float]:
    """Whether our own code is preferred for a kind of products; seconds of a typical one, by us and by oneDNN."""
    number = KINDS.index(kind)
    own, onednn = _runtime.time_products(number, runs)
    margin = MARGIN if _suggests_own(number) else 1 / MARGIN
    return own <= onednn * margin, own, onednn


def tune(runs: int = 20) -> dict[str, tuple[bool, float, float]]:
    """Measures all kinds of products, and keeps what was found for processes that start from now on: by kind, whether our own code
    is preferred, and the seconds of a typical product by us and by oneDNN."""
    found = {kind: measure(kind, runs) for kind in KINDS[1:]}
    known = {kind: own for kind, (own, _, _) in found.items()}
    _known[_path()] = known
    _save(_path(), known)
    return found


def load() -> dict[str, bool]:
    """What was measured on this machine before; the library follows it from now on."""
    path = _path()
    known = _known.get(path)
    if known is None:
        known = _known[path] = {}
        try:
            with open(path) as f:
                words = [line.split() for line in f]
            known.update((kind, own == "own") for kind, own in words if kind in KINDS and own in ("own", "onednn"))
        except (OSError, ValueError):  # none yet, or not ours: measured again
            known.clear()
        for kind, own in known.items():
            _runtime.prefer_products(KINDS.index(kind), own)
    return known


def _suggests_own(number: int) -> bool:
    return _runtime.suggests_own_products(number)


def _path() -> str:
    """The file for this processor, its instructions and threads in use; "" where nothing is kept."""
    folder = cache_dir()
    if not folder:
        return ""
    described = f"1 {_processor()} {_runtime.library_isa()} {_runtime.num_threads()}"
    return os.path.join(folder, "machine", blake2b(described.encode(), digest_size=8).hexdigest())


@functools.cache
def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            return next((line.strip() for line in f if line.startswith(("model name", "CPU part"))), "")
    except OSError:
        return ""


def _save(path: str, known: dict[str, bool]):
    if not path:
        return
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.{os.getpid()}", "w") as f:
            f.writelines(f"{kind} {'own' if own else 'onednn'}\n" for kind, own in known.items())
        os.replace(f.name, path)
    except OSError:
        pass  # a folder that cannot be written: the next process measures again
