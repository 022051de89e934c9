"""tune: what properties of a machine do not decide is measured on it, once.

Whether matrix products are quicker by our own code or by oneDNN depends on the processor (Note [Choice of products] in
src/library/product_choice.h). The first program of a machine that has a product of some kind measures it, for a few milliseconds,
before it runs; `tandem tune` measures all of them with more care. Convolutions have several ways, and are measured as they are met
(Note [Choice of convolutions] in src/library/conv_choice.h). What was chosen stays, in a file under the cache folder (Note [Choices
stay] in src/library/choices.h).

Both ways take turns, and of each the least time counts: other work makes a run longer, never shorter. On a busy machine the two
least times of a way are not nearly the same; then only a way that is much quicker takes the place of the suggested one. Of one
thread, processor time is measured, which others do not lengthen (Note [Measured beside other work] in src/library/measure.h).
"""

from __future__ import annotations

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
BUDGET = 0.25  # seconds that a process spends on products unasked
FIRST_STEPS = 0.06  # seconds that first steps wait for measurements of convolutions
MARGIN = (
    1.1  # by how much one must be quicker than the other to take the place of what the instruction set suggests, and
)
BUSY_MARGIN = 1.5  # where measurements vary
RUNS = 5
QUIET = 1.05  # by how much the second of the least times may be longer than the first


class Times(NamedTuple):
    """The least seconds of a typical product by us and by oneDNN, and whether other work left the measurement alone."""

    own: float
    onednn: float
    quiet: bool


_file: str | None = None  # of choices
_spent = 0.0


def open_choices():
    """Has ready what was chosen on this machine before: to be called before a program runs that has library routines."""
    global _file
    path = processor_file("choices")
    if path == _file:
        return
    if _file is None:
        _runtime.set_convolution_budget(FIRST_STEPS)
    _file = path
    _runtime.keep_choices_in(path if path and disk_cache.make_folder(os.path.dirname(path)) else "")


def prepare_products(batch: int, m: int, n: int, k: int, a: tuple, b: tuple):
    """A program will multiply such matrices, whose rows and columns have these strides: has it chosen who computes it."""
    global _spent
    open_choices()
    if batch * m * n * k < WORTH or _runtime.blas_backend() != "onednn" or _runtime.deterministic() or _spent >= BUDGET:
        return
    number = _runtime.product_kind(batch, m, n, k, a, b)
    if KINDS[number] == "never" or _runtime.chosen_own_products(number) is not None:
        return
    started = time.perf_counter()
    _runtime.choose_products(number, prefers_own(number, measure(number, RUNS)))
    _spent += time.perf_counter() - started


def measure(number: int, runs: int) -> Times:
    """Of a kind of products."""
    own, onednn = (sorted(times) for times in _runtime.time_products(number, runs))
    return Times(own[0], onednn[0], all(times[1] <= times[0] * QUIET for times in (own, onednn)))


def prefers_own(number: int, times: Times) -> bool:
    """Whether our own code is to compute products of a kind."""
    margin = MARGIN if times.quiet else BUSY_MARGIN
    return times.own <= times.onednn * (margin if _suggests_own(number) else 1 / margin)


def tune(runs: int = 20, attempts: int = 8) -> dict[str, tuple[bool, float, float]]:
    """Measures all kinds of products, and chooses again, for processes to come as well. Goes on while other work disturbs it, up to
    some attempts. By kind: whether our own code is preferred, and the seconds of a typical product by us and by oneDNN."""
    open_choices()
    found = {}
    for number in range(1, len(KINDS)):
        times = measure(number, runs)
        for _ in range(attempts - 1):
            if times.quiet:
                break
            other = measure(number, runs)
            times = Times(min(times.own, other.own), min(times.onednn, other.onednn), other.quiet)
        own = prefers_own(number, times)
        _runtime.choose_products(number, own, again=True)
        found[KINDS[number]] = own, times.own, times.onednn
    return found


def _suggests_own(number: int) -> bool:
    return _runtime.suggests_own_products(number)


def machine_file(name: str) -> str:
    """The file in a folder of this name for this processor, its instructions and threads in use; "" where nothing is kept."""
    return processor_file(name, f" {_runtime.library_isa()} {_runtime.num_threads()}")


def processor_file(name: str, more: str = "") -> str:
    """The file in a folder of this name for this processor, and more that is said of it; "" where nothing is kept."""
    folder = cache_dir()
    if not folder:
        return ""
    return os.path.join(folder, name, blake2b((_processor() + more).encode(), digest_size=8).hexdigest())


@functools.cache
def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            return next((line.strip() for line in f if line.startswith(("model name", "CPU part"))), "")
    except OSError:
        return ""
