"""td.version.cuda and kin: what this was made with, and finds."""

from __future__ import annotations

from tandem import __version__, _runtime

hip = None


def __getattr__(name):
    if name == "cuda":  # the version that the driver supports, or None
        if _runtime.cuda_unavailable():
            return None
        number = _runtime.cuda_driver_version()
        return f"{number // 1000}.{number % 1000 // 10}"
    raise AttributeError(f"module 'tandem.version' has no attribute {name!r}")


__all__ = ["__version__", "hip"]
