"""torch.FloatTensor, torch.cuda.LongTensor and the others: classes that make tensors of one dtype."""

from __future__ import annotations

import inspect

import tandem as td
from tandem.tensors.typed import DTYPES, build


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
TYPED = {name: _typed(name, "cpu") for name in _NAMES}
globals().update(TYPED)
for _name in _NAMES:
    setattr(td.cuda, _name, _typed(_name, "cuda"))


def _older(name: str, scalars: int):
    """A method that takes its factor first, too, as PyTorch's did: x.add_(2.0, y) is x.add_(y, alpha=2.0)."""
    method = getattr(td.Tensor, name)
    factor = "value" if name.startswith("addc") else "alpha"

    def call(self, *args, **kwargs):
        if len(args) == scalars + 1 and not isinstance(args[0], td.Tensor):
            return method(self, *args[1:], **{factor: args[0]})
        return method(self, *args, **kwargs)

    call.__name__, call.__doc__ = name, method.__doc__
    call.__signature__ = inspect.signature(method)
    call.newer = method  # which type checkers are told of
    return call


for _name, _tensors in (("add_", 1), ("sub_", 1), ("addcmul", 2), ("addcmul_", 2), ("addcdiv", 2), ("addcdiv_", 2)):
    setattr(td.Tensor, _name, _older(_name, _tensors))


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


def spmm(input, mat2, out_dtype=None):
    """The product of a sparse and a dense matrix.

    >>> td.torch.spmm(td.eye(2).to_sparse(), td.ones(2, 1)).tolist()
    [[1.0], [1.0]]
    """
    made = input @ mat2
    return made if out_dtype is None else made.to(out_dtype)


dsmm = smm = spmm


__all__ = [
    "dsmm",
    "smm",
    "spmm",
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
