"""The decorators of TorchScript that model code carries: functions and modules stay Python here, and td.compile compiles them."""

from __future__ import annotations

import sys
from typing import Final, Optional

from tandem.compiling.compiled import compile
from tandem.errors import UnsupportedError

__all__ = [
    "Final",
    "ScriptFunction",
    "ScriptModule",
    "annotate",
    "export",
    "freeze",
    "ignore",
    "is_scripting",
    "is_tracing",
    "load",
    "optimize_for_inference",
    "save",
    "script",
    "script_if_tracing",
    "trace",
    "unused",
]


class ScriptModule:
    """What TorchScript makes of modules: nothing here is one, which isinstance tells."""


class annotations:
    """Types that TorchScript reads."""

    List, Tuple, Dict, Optional = list, tuple, dict, Optional
    BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = list


__path__ = []  # so that `from tandem.jit.annotations import BroadcastingList2` is looked up
sys.modules[f"{__name__}.annotations"] = annotations


class ScriptFunction:
    """What TorchScript makes of functions: nothing here is one, which isinstance tells."""


def trace(func, example_inputs=None, **kwargs):
    """td.compile(func): programs are made from what runs, for whatever inputs come.

    >>> td.jit.trace(lambda x: 2 * x, (td.ones(2),))(td.ones(3))
    tensor([2., 2., 2.])
    """
    return compile(func)


def script(obj, optimize=None, example_inputs=None, **kwargs):
    """The function, class or module itself: there is no second language it would be translated to.

    >>> @td.jit.script
    ... def double(x: td.Tensor) -> td.Tensor:
    ...     return 2 * x
    >>> double(td.ones(2))
    tensor([2., 2.])
    """
    return obj


def save(m, f, *args, **kwargs):
    """Refuses: there is no file format of TorchScript here. td.export.save writes programs, td.save weights.

    >>> td.jit.save(td.nn.Linear(1, 1), "model.pt")
    Traceback (most recent call last):
        ...
    tandem.UnsupportedError: jit.save: there is no TorchScript, whose files PyTorch's runtime reads...
    """
    raise UnsupportedError(
        "jit.save", "there is no TorchScript, whose files PyTorch's runtime reads",
        fix="td.export.save(td.export.export(model, (example,)), path) writes a program, td.save(model.state_dict(), path) "
        "the weights",
    )  # fmt: skip


def load(f, *args, **kwargs):
    """Refuses: files of TorchScript hold code for PyTorch's runtime."""
    raise UnsupportedError(
        "jit.load", f"{f} would hold code for PyTorch's runtime",
        fix="convert it where PyTorch is installed: torch.onnx.export, and td.onnx.load here",
    )  # fmt: skip


def freeze(mod, preserved_attrs=None, optimize_numerics=True):
    """The module itself: td.compile makes what a module is called with part of its program.

    >>> td.jit.freeze(td.nn.ReLU().eval())
    ReLU()
    """
    return mod


def optimize_for_inference(mod, other_methods=None):
    """The module itself."""
    return mod


def script_if_tracing(fn):
    return fn


_script_if_tracing = script_if_tracing


def export(fn):
    return fn


def unused(fn):
    return fn


def ignore(fn=None, *, drop: bool = False, **kwargs):
    """A decorator, with or without arguments, that changes nothing."""
    return fn if callable(fn) else (lambda decorated: decorated)


def annotate(the_type, the_value):
    return the_value


def is_scripting() -> bool:
    return False


def is_tracing() -> bool:
    return False


def _overload(fn):
    """The function itself: TorchScript's overloads are declarations."""
    return fn


_overload_method = _overload
