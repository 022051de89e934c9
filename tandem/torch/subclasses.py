"""Subclasses of Tensor: what operators make of them is of their class, and `__torch_function__` says what operators do.

A subclass that is defined in a program that follows PyTorch (tandem/promotion.py) gets methods and properties that ask it first;
operators ask by themselves, as Note [Overrides] says. A class switches this off as Parameter does: `__torch_function__ =
_disabled_torch_function_impl`.
"""

from __future__ import annotations

import functools
import sys
import types

from tandem import _runtime, promotion
from tandem.errors import UnsupportedError
from tandem.nn import functional as nn_functional
from tandem.nn.parameter import Buffer, Parameter
from tandem.tensors.methods import Tensor
from tandem.tensors.parts import TensorInParts
from tandem.torch import overrides


class DisableTorchFunctionSubclass:
    """with DisableTorchFunctionSubclass(): subclasses of Tensor are not asked, and results are plain tensors."""

    def __enter__(self):
        self.before = _runtime.set_overrides_disabled(True)
        return self

    def __exit__(self, *_):
        _runtime.set_overrides_disabled(self.before)


def _disabled_torch_function_impl(func, types, args=(), kwargs=None):
    """What a subclass of Tensor has for __torch_function__ if operators are to take it for a tensor."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


# Results that are no new tensors: PyTorch gives them as they are.
_AS_THEY_ARE = {Tensor.grad.__get__}


def _torch_function(cls, func, types, args=(), kwargs=None):
    """func(*args, **kwargs), whose results are of this class."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
        return result if func in _AS_THEY_ARE else _of_class(cls, result)


def _of_class(cls, result):
    if isinstance(result, Tensor):
        if isinstance(result, (cls, TensorInParts)):
            return result
        return _runtime.same_as_subclass(cls, result)
    if isinstance(result, (tuple, list)) and any(isinstance(r, (Tensor, tuple, list)) for r in result):
        made = [_of_class(cls, r) for r in result]
        return type(result)._make(made) if hasattr(result, "_make") else type(result)(made)
    return result


def as_subclass(self, cls):
    """The same memory and history as an object of a subclass of Tensor, without calling its constructor.

    >>> class Metres(td.Tensor): ...
    >>> type(td.ones(2).as_subclass(Metres)).__name__
    'Metres'
    """
    with DisableTorchFunctionSubclass():
        return _runtime.same_as_subclass(cls, self.view_as(self))


def _make_subclass(cls, data, require_grad=False, **_):
    made = _runtime.make_subclass(cls, data)
    with DisableTorchFunctionSubclass():
        made.requires_grad = bool(require_grad)
    return made


def _make_wrapper_subclass(cls, *args, **kwargs):
    raise UnsupportedError(
        "_make_wrapper_subclass", "tensors without memory are not there", fix="hold the memory: x.as_subclass(cls)"
    )


# -- what a class gets when it is defined

_PROTOCOL = (
    "__getitem__", "__setitem__", "__len__", "__iter__", "__contains__", "__bool__", "__int__", "__float__", "__complex__",
    "__index__", "__repr__", "__str__", "__format__", "__deepcopy__",
)  # fmt: skip
_METHODS = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_PROPERTIES = (types.GetSetDescriptorType, property)
_NOT_ASKED = {"as_subclass"}


def _method(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        relevant = overrides.relevant(args, kwargs)
        if overrides.has_torch_function(relevant):
            return overrides.handle_torch_function(function, relevant, *args, **kwargs)
        return function(*args, **kwargs)

    return call


def _property(descriptor):
    def get(self):
        getter = descriptor.__get__
        return overrides.handle_torch_function(getter, (self,), self) if overrides.overrides(self) else getter(self)

    def put(self, value):
        setter = descriptor.__set__
        if overrides.overrides(self):
            overrides.handle_torch_function(setter, (self, value), self, value)
        else:
            setter(self, value)

    return property(get, put, doc=descriptor.__doc__)


def _asking() -> dict:
    """Methods and properties of Tensor that are no operators, as those that ask first."""
    made = {}
    for name, value in vars(Tensor).items():
        if name in _NOT_ASKED or (name.startswith("_") and name not in _PROTOCOL):
            continue
        if isinstance(value, _METHODS):
            made[name] = _method(value)
        elif isinstance(value, _PROPERTIES):
            made[name] = _property(value)
    return made


def _defined(cls, **kwargs):
    """__init_subclass__ of Tensor: a class that is asked gets what asks it."""
    super(Tensor, cls).__init_subclass__(**kwargs)
    asked = cls.__torch_function__ is not _disabled_torch_function_impl and promotion.follows_pytorch(sys._getframe(1))
    cls._overrides_operators = asked
    if not asked or any(vars(base).get("_overrides_operators") for base in cls.__mro__[1:]):
        return
    for name, value in _asking().items():
        if not any(name in vars(base) for base in cls.__mro__[: cls.__mro__.index(Tensor)]):
            setattr(cls, name, value)
    _runtime.set_tensors_override(True)
    overrides.make_overridable(sys.modules["tandem.torch"], nn_functional)


def attach() -> None:
    """From now on subclasses of Tensor that are defined take part."""
    for ours in (Parameter, Buffer, TensorInParts):
        ours.__torch_function__ = staticmethod(_disabled_torch_function_impl)
    Tensor.__torch_function__ = classmethod(_torch_function)
    Tensor.__init_subclass__ = classmethod(_defined)
    Tensor.as_subclass = as_subclass
    Tensor._make_subclass = staticmethod(_make_subclass)
    Tensor._make_wrapper_subclass = staticmethod(_make_wrapper_subclass)
