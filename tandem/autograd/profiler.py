"""PyTorch's older path to td.profile."""

from tandem import profiler


def __getattr__(name):
    if name in ("profile", "record_function"):
        return getattr(profiler, name)
    raise AttributeError(f"module 'tandem.autograd.profiler' has no attribute {name!r}")
