"""Variable, from before tensors recorded by themselves."""

from __future__ import annotations

from tandem import _runtime


class _AnyTensor(type):
    def __instancecheck__(cls, x):
        return isinstance(x, _runtime.Tensor)


class Variable(metaclass=_AnyTensor):
    """Variable(x, requires_grad) is the tensor itself; every tensor is an instance.

    >>> td.autograd.Variable(td.ones(2), requires_grad=True)
    tensor([1., 1.], requires_grad=True)
    """

    def __new__(cls, data, requires_grad: bool = False):
        if not isinstance(data, _runtime.Tensor):
            raise TypeError(f"Variable takes a tensor, not {type(data).__name__}")
        return data.detach().requires_grad_() if requires_grad and not data.requires_grad else data
