"""torch.functional: the path of functions that PyTorch writes in Python; they are those of the namespace."""

import sys


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(sys.modules["tandem.torch"], name)
