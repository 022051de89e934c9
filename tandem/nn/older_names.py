"""Names without an underscore at their end, by which older programs for PyTorch call functions that write in place."""

from __future__ import annotations

import functools
import warnings


def older_name(function):
    """function under its name without the underscore, with a warning: nn.init.normal for nn.init.normal_."""
    name = function.__name__.removesuffix("_")

    @functools.wraps(function)
    def call(*args, **kwargs):
        warnings.warn(f"{name} is now called {name}_", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Older name of `{name}_`."
    return call
