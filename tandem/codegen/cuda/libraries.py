"""Where NVIDIA's libraries are: in wheels (`pip install tandem-dl[cuda]`), or where the system has them."""

from __future__ import annotations

import atexit
import ctypes
import functools
import glob
import os
import site
import sys

from tandem import _runtime, forks
from tandem.errors import DeviceError

_SYSTEM = ("/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/usr/lib/x86_64-linux-gnu")


_lock = forks.lock()  # many threads compile at once, and looking through folders takes as long as compiling
_products_ahead = False


def candidates(name: str) -> tuple[str, ...]:
    """Paths of a library such as "nvrtc" that exist, the newest version first, wheels before the system; then bare names."""
    with _lock:
        return _candidates(name)


@functools.cache
def _candidates(name: str) -> tuple[str, ...]:
    folders = list(site.getsitepackages())
    folders += [p for p in sys.path if p.endswith("site-packages") and p not in folders]
    found: list[str] = []
    extra = os.environ.get("TANDEM_CUDA_PATH")
    places = extra.split(os.pathsep) if extra else []
    places += [f"{folder}/nvidia/*/lib" for folder in folders] + list(_SYSTEM)
    for place in places:
        matches = glob.glob(f"{place}/lib{name}.so.[0-9]*")
        exact = [m for m in matches if m.rsplit(".so.", 1)[1].isdigit()]
        found += sorted(exact or matches, reverse=True)
    return (*dict.fromkeys(found), *(f"lib{name}.so.{v}" for v in (14, 13, 12, 11, 9, 2)), f"lib{name}.so")


def open_library(name: str, wheel: str) -> ctypes.CDLL:
    """The library, or an error that says what is missing and what to install."""
    problems = []
    for path in candidates(name):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            problems.append(str(error))
    raise DeviceError(
        None,
        f"lib{name} cannot be opened: {problems[0]}",
        fix=f"pip install tandem-dl[cuda] (or {wheel}), or install CUDA",
    )


def open_products_ahead(device: int, dtype) -> None:
    """A program that will multiply matrices on cuda:device is being traced: cuBLASLt opens meanwhile (Note [Products ahead] in
    src/library/cuda/matmul.cc)."""
    global _products_ahead
    if not _products_ahead:
        _products_ahead = True
        atexit.register(_runtime.finish_preload)  # the library's own ending must not come in between
        _runtime.cuda_open_products_ahead(device, dtype.code, list(candidates("cublasLt")))


def find(name: str) -> str | None:
    """Where the library would be opened from; None if nowhere."""
    for path in candidates(name):
        try:
            ctypes.CDLL(path)
        except OSError:
            continue
        return path
    return None
