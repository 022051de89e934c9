"""torch.overrides: classes that say by `__torch_function__` what functions do with them.

Note [Overrides]
PyTorch asks the arguments of every call whether they override it. Here a call is made first, and its arguments are asked when it
fails, which costs calls with tensors nothing: an object that is no tensor makes every operator fail. Calls with subclasses of
Tensor would succeed, so operators look for them before, from the moment that a program defines the first one
(tandem/torch/subclasses.py); their other methods and properties get a form that asks when the class is defined.
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


def overrides(x) -> bool:
    """Whether x is to be asked: a class with __torch_function__ that is no Tensor, or a subclass of Tensor, where not disabled.

    >>> td.torch.overrides.overrides(td.ones(2))
    False
    """
    if isinstance(x, Tensor):
        return getattr(type(x), "_overrides_operators", False) and not _runtime.overrides_disabled()
    return hasattr(type(x), "__torch_function__")


def has_torch_function(args) -> bool:
    """Whether one of the arguments is of a class that is asked what functions do.

    >>> td.torch.overrides.has_torch_function((td.ones(2), 1.0))
    False
    """
    return any(map(overrides, args))


def has_torch_function_variadic(*args) -> bool:
    """has_torch_function of loose arguments.

    >>> td.torch.overrides.has_torch_function_variadic(td.ones(2), 1.0)
    False
    """
    return has_torch_function(args)


has_torch_function_unary = overrides


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
        if overrides(x) and type(x) not in map(type, asked):  # a subclass before the classes it is made of
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


def relevant(args, kwargs) -> list:
    """The arguments that may be asked, those in lists with them.

    >>> td.torch.overrides.relevant(([1, 2], 3), {})
    [1, 2, 3]
    """
    values = [*args, *kwargs.values()]
    return [x for v in values for x in (v if isinstance(v, (tuple, list)) else (v,))]


def overridable(function):
    """A function of Python that classes can override, as operators can be by themselves; see Note [Overrides]."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        if (args and overrides(args[0])) or (
            _runtime.tensors_override() and has_torch_function(relevant(args, kwargs))
        ):
            return handle_torch_function(call, relevant(args, kwargs), *args, **kwargs)
        try:
            return function(*args, **kwargs)
        except (DTypeError, TypeError, AttributeError, NotImplementedError):
            if not has_torch_function(relevant(args, kwargs)):
                raise
        return handle_torch_function(call, relevant(args, kwargs), *args, **kwargs)

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
    "overridden", lambda op, args, kwargs: handle_torch_function(op, relevant(args, kwargs), *args, **kwargs)
)
