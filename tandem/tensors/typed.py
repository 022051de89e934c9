"""Tensors by their type, as programs made them before td.tensor: Tensor([...]), x.new(2, 3), x.type("torch.LongTensor")."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import DTypeError
from tandem.sizes import Size
from tandem.tensors.constructors import empty, tensor

# PyTorch's names for tensors of a dtype.
DTYPES = {
    "FloatTensor": dtypes.float32, "DoubleTensor": dtypes.float64, "HalfTensor": dtypes.float16,
    "BFloat16Tensor": dtypes.bfloat16, "ByteTensor": dtypes.uint8, "CharTensor": dtypes.int8, "ShortTensor": dtypes.int16,
    "IntTensor": dtypes.int32, "LongTensor": dtypes.int64, "BoolTensor": dtypes.bool_,
    "ComplexFloatTensor": dtypes.complex64, "ComplexDoubleTensor": dtypes.complex128,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def build(name: str, args: tuple, dtype, device=None):
    """What a typed constructor makes: nothing, uninitialised memory of these sizes, a tensor's values, or data."""
    if not args:
        return empty(0, dtype=dtype, device=device)
    if all(isinstance(a, int) and not isinstance(a, bool) for a in args):
        return empty(*args, dtype=dtype, device=device)
    if len(args) > 1:
        raise DTypeError(name, f"arguments are {args}; they must be sizes, or one sequence of numbers")
    data = args[0]
    if isinstance(data, Size):
        return empty(tuple(data), dtype=dtype, device=device)
    if isinstance(data, _runtime.Tensor):
        return data.detach().to(dtype)
    return tensor(data, dtype=dtype, device=device)


def _construct(cls, *args, device=None):
    """Tensor(2, 3) has these sizes and is not initialised; Tensor([2, 3]) has these elements. Both are of the default float."""
    made = build("Tensor", args, dtypes.default_float(), device)
    return made if cls is _runtime.Tensor else _runtime.make_subclass(cls, made)


def new(self, *args, device=None):
    """A tensor of this one's dtype: of these sizes, not initialised, or with these elements.

    >>> td.ones(1, dtype=td.int64).new([1, 2])
    tensor([1, 2])
    """
    return build("new", args, self.dtype, self.device if device is None else device)


def as_type(self, dtype=None, non_blocking=False, **kwargs):
    """This tensor as another dtype, by itself or by the name of PyTorch's constructor; without one, that name of its own.

    >>> td.ones(2).type("torch.LongTensor").type()
    'torch.LongTensor'
    """
    if dtype is None:
        place = "torch.cuda" if self.is_cuda else "torch"
        return f"{place}.{_NAMES.get(self.dtype, self.dtype)}"
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", "")
    found = DTYPES.get(name.rpartition(".")[2])
    made = F.astype(self, found or dtypes.as_dtype(dtype), copy=False)
    if found is None:
        return made
    module = name if isinstance(dtype, str) else f"{dtype.__module__}.{name}"
    return made.cuda() if ".cuda." in module else made.cpu()


def attach(tensor):
    _construct.__name__ = "__new__"
    tensor.__new__ = staticmethod(_construct)
    tensor.new, tensor.type = new, as_type
