"""PyTorch's older path to td.profile."""


def __getattr__(name):
    if name in ("profile", "record_function"):
        from tandem import profiler

        return getattr(profiler, name)
    raise AttributeError(f"module 'tandem.autograd.profiler' has no attribute {name!r}")
