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

__all__ = [*_NAMES, "set_default_tensor_type"]
