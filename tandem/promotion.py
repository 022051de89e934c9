"""Which rule of promotion a call follows where tensors without axes are among its operands.

Note [Tensors without axes]
By the Array API standard a tensor of shape () promotes like any other: float32 of shape (3,) times float64 of shape () is
float64. In PyTorch it adapts as a Python number does, but keeps its type where its kind wins: the product is float32, while
int32 of shape (3,) times float64 of shape () is float64. Tensors are the same objects for both, so it is the program that
decides, by what it has imported: code of a module that has `tandem.torch`, or something from it, among its globals follows
PyTorch; after `tandem.torch.install()` the whole process does. All other code follows the standard. Frames of this package in
between do not count, so that `F.mse_loss` is what its caller is.

The question is asked only where the answer matters, and only once tandem.torch is imported (src/operators/promotion.h); the
answer is part of the signature of a call, as the mode of td.autocast is.
"""

from __future__ import annotations

import sys
from types import ModuleType

from tandem import _runtime

_PYTORCH = "tandem.torch"
_everywhere: bool | None = None  # None until tandem.torch is imported: nobody can have asked


def watch() -> None:
    """From now on callers are looked at."""
    global _everywhere
    if _everywhere is None:
        _everywhere = False
        _runtime.set_callback("axes_first", axes_first)


def follow_pytorch() -> None:
    """The whole process follows PyTorch from now on."""
    global _everywhere
    watch()
    _everywhere = True


def axes_first(op=None, parameter: str = "") -> bool:
    """Whether the program that called us follows PyTorch: tensors without axes adapt to those that have some.

    With an operator and the name of a parameter, which got an empty sequence: whether this stands for all axes.
    """
    if op is not None:
        return _means_all(op, parameter)
    return follows_pytorch(sys._getframe(1))


def follows_pytorch(frame) -> bool:
    """Whether the program that a frame belongs to does."""
    if _everywhere is None or _everywhere:
        return _everywhere is True
    while frame is not None:
        names = frame.f_globals
        module = names.get("__name__")
        if _is_within(module, _PYTORCH):
            return True
        if not _is_within(module, "tandem"):
            return any(_is_pytorch(value) for value in list(names.values()))
        frame = frame.f_back
    return False


def _means_all(op, parameter: str) -> bool:
    """x.sum(()) adds up all elements in PyTorch, and none by the standard. Code of this package means what it says."""
    if not any(p.name == parameter and p.axes for p in op.parameters):
        return False
    names = sys._getframe(2).f_globals
    module = names.get("__name__")
    if _is_within(module, _PYTORCH):
        return True
    if _is_within(module, "tandem"):
        return False
    return _everywhere is True or any(_is_pytorch(value) for value in list(names.values()))


def _is_pytorch(value) -> bool:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(type(value), "__module__", None)
    if name == "builtins":  # functions and classes
        name = getattr(value, "__module__", None)
    return _is_within(name, _PYTORCH)


def _is_within(module, package: str) -> bool:
    return isinstance(module, str) and (module == package or module.startswith(package + "."))
