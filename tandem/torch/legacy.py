"""torch.FloatTensor, torch.cuda.LongTensor and the others: classes that make tensors of one dtype."""

from __future__ import annotations

import tandem as td
from tandem.typed import DTYPES, build


class _Typed(type):
    """Calls make tensors; isinstance asks for dtype and device."""

    def __call__(cls, *args, device=None):
        return build(cls.__name__, args, cls.dtype, device or cls.device)

    def __instancecheck__(cls, x):
        return isinstance(x, td.Tensor) and x.dtype is cls.dtype and str(x.device).startswith(cls.device)


def _typed(name: str, device: str):
    module = "torch" if device == "cpu" else "torch.cuda"
    return _Typed(name, (), {"dtype": DTYPES[name], "device": device, "__module__": module})


class _Generators(type):
    """Calls make td.Generators, which know no device: the same numbers come on all of them."""

    def __call__(cls, device="cpu"):
        return td.Generator()

    def __instancecheck__(cls, x):
        return isinstance(x, td.Generator)


class Generator(metaclass=_Generators):
    """A source of random numbers, with a seed of its own.

    >>> torch = td.torch
    >>> a, b = (torch.rand(2, generator=torch.Generator(device="cpu").manual_seed(1)) for _ in range(2))
    >>> torch.equal(a, b)
    True
    """


def set_default_tensor_type(t):
    """torch.set_default_dtype by the name of a typed constructor.

    >>> td.torch.set_default_tensor_type("torch.FloatTensor")
    """
    name = t if isinstance(t, str) else t.__name__
    td.set_default_dtype(DTYPES[name.rpartition(".")[2]])


_NAMES = [name for name in DTYPES if not name.startswith("Complex")]
for _name in _NAMES:
    globals()[_name] = _typed(_name, "cpu")
    setattr(td.cuda, _name, _typed(_name, "cuda"))


class SymInt:
    """What PyTorch's tracer makes of sizes: nothing here is one, which isinstance tells."""


SymFloat = SymBool = SymInt


def _assert(condition, message):
    """An assert that PyTorch's tracer keeps."""
    if not condition:
        raise AssertionError(message)


class _NoDType:
    """A type of PyTorch's that tensors have not here: it can be named and compared, and is refused where a dtype is wanted."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self):
        return f"torch.{self.name}"


complex32 = chalf = _NoDType("complex32")


__all__ = [
    *_NAMES,
    "chalf",
    "complex32",
    "SymBool",
    "SymFloat",
    "SymInt",
    "_assert",
    "Generator",
    "set_default_tensor_type",
]
