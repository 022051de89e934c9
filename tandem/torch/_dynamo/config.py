"""Settings of PyTorch's tracer: they can be set, and change nothing. Tandem's own are in docs/switches.md."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
