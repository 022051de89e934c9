"""Parameters and buffers: tensors that a Module notices when they are assigned to it."""

from __future__ import annotations

from tandem import _runtime, dtypes
from tandem.aliases import from_above
from tandem.devices import code_of, is_meta, of_meta

Tensor = _runtime.Tensor
__getattr__ = from_above(__name__)


class Parameter(Tensor):
    """A tensor that a module learns. It shares the memory of `data` and requires a gradient unless told otherwise.

    >>> td.nn.Parameter(td.zeros(2))
    Parameter containing:
    tensor([0., 0.], requires_grad=True)
    """

    def __new__(cls, data=None, requires_grad: bool = True):
        if data is None:
            data = empty_tensor(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"a {cls.__name__} is made from a tensor, not from a {type(data).__name__}")
        made = of_meta().member(cls, data) if data.is_meta else _runtime.make_subclass(cls, data)
        made.requires_grad = bool(requires_grad)
        return made

    def __repr__(self):
        return f"Parameter containing:\n{self.detach().requires_grad_(self.requires_grad)!r}"


class Buffer(Tensor):
    """A tensor that belongs to a module's state but is not learned; assigning one registers it.

    persistent: whether state_dict has it
    """

    def __new__(cls, data=None, *, persistent: bool = True):
        if data is None:
            data = empty_tensor(0)
        made = of_meta().member(cls, data) if data.is_meta else _runtime.make_subclass(cls, data)
        made.persistent = persistent
        return made


def empty_tensor(*shape, device=None, dtype=None) -> Tensor:
    """For the state of a module, its values still to be set: where and of the type that new tensors are, unless told otherwise."""
    dtype = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype)
    return of_meta().empty(shape, dtype) if is_meta(device) else _runtime.empty(shape, dtype, code_of(device))
