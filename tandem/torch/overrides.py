"""torch.overrides: classes that are no tensors and say by `__torch_function__` what functions do with them.

Note [Overrides]
PyTorch asks the arguments of every call whether they override it. Here a call is made first, and its arguments are asked when it
fails, which costs calls with tensors nothing: an object that is no tensor makes every operator fail. So `__torch_function__`
works for classes of their own (operators of matrices that are never written out, lazy tensors), not for subclasses of Tensor,
whose calls succeed.
"""

from __future__ import annotations

import functools
import types

from tandem import _runtime
from tandem.errors import DTypeError
from tandem.tensors.methods import Tensor

__all__ = [
    "handle_torch_function", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "is_tensor_like",
    "resolve_name", "wrap_torch_function",
]  # fmt: skip


def _overrides(x) -> bool:
    return not isinstance(x, Tensor) and hasattr(type(x), "__torch_function__")


def has_torch_function(args) -> bool:
    """Whether one of the arguments is of a class with __torch_function__ that is no Tensor.

    >>> td.torch.overrides.has_torch_function((td.ones(2), 1.0))
    False
    """
    return any(map(_overrides, args))


def has_torch_function_variadic(*args) -> bool:
    """has_torch_function of loose arguments.

    >>> td.torch.overrides.has_torch_function_variadic(td.ones(2), 1.0)
    False
    """
    return has_torch_function(args)


has_torch_function_unary = _overrides


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """What a class with __torch_function__ among relevant_args makes of public_api(*args, **kwargs).

    >>> class Half:
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         return func.__name__
    >>> td.torch.overrides.handle_torch_function(td.exp, (Half(),), Half())
    'exp'
    >>> td.torch.add(Half(), 1.0)
    'add'
    """
    asked = []
    for x in relevant_args:
        if _overrides(x) and type(x) not in map(type, asked):  # a subclass before the classes it is made of
            first = next((i for i, a in enumerate(asked) if issubclass(type(x), type(a))), len(asked))
            asked.insert(first, x)
    for x in asked:
        result = x.__torch_function__(public_api, tuple(map(type, asked)), args, kwargs)
        if result is not NotImplemented:
            return result
    kinds = [type(x) for x in asked]
    raise TypeError(
        f"no implementation found for {resolve_name(public_api)} on types that implement __torch_function__: {kinds}"
    )


def wrap_torch_function(dispatcher):
    """Makes a function that classes can override: dispatcher(*args, **kwargs) gives the arguments that are asked.

    >>> @td.torch.overrides.wrap_torch_function(lambda x: (x,))
    ... def twice(x):
    ...     return x * 2
    >>> twice(td.ones(2))
    tensor([2., 2.])
    """

    def decorate(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(call, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return call

    return decorate


def is_tensor_like(x) -> bool:
    """Whether x is a tensor or of a class with __torch_function__.

    >>> td.torch.overrides.is_tensor_like(td.ones(2))
    True
    """
    return isinstance(x, Tensor) or hasattr(type(x), "__torch_function__")


def resolve_name(function) -> str:
    """The name of a function of torch.

    >>> td.torch.overrides.resolve_name(td.exp)
    'torch.exp'
    """
    return f"torch.{getattr(function, '__name__', function)}"


def _relevant(args, kwargs) -> list:
    values = [*args, *kwargs.values()]
    return [x for v in values for x in (v if isinstance(v, (tuple, list)) else (v,))]


def overridable(function):
    """A function of Python that classes can override, as operators can be by themselves; see Note [Overrides]."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        if args and _overrides(args[0]):
            return handle_torch_function(call, _relevant(args, kwargs), *args, **kwargs)
        try:
            return function(*args, **kwargs)
        except (DTypeError, TypeError, AttributeError, NotImplementedError):
            relevant = _relevant(args, kwargs)
            if not has_torch_function(relevant):
                raise
        return handle_torch_function(call, relevant, *args, **kwargs)

    call.overridden = function
    return call


# Functions that take what they are given for what it is, as in PyTorch: they make tensors, ask for types, or set something.
_NOT_ASKED = {
    "as_tensor", "asarray", "autobatch", "compile", "from_dlpack", "from_numpy", "frombuffer", "install", "load", "print",
    "promote_types", "save", "scalar_tensor", "tensor", "typename", "vmap",
}  # fmt: skip


def _is_asked(name: str) -> bool:
    return not name.startswith(("_", "is_", "get_", "set_")) and name not in _NOT_ASKED


def make_overridable(*modules):
    """Has the functions of Python in modules ask their arguments: install() does, so that other programs do not pay for it."""
    for module in modules:
        for name, value in list(vars(module).items()):
            if isinstance(value, types.FunctionType) and _is_asked(name) and not hasattr(value, "overridden"):
                setattr(module, name, overridable(value))


_runtime.set_callback(
    "overridden", lambda op, args, kwargs: handle_torch_function(op, _relevant(args, kwargs), *args, **kwargs)
)
