"""torch.library.custom_op: functions of tensors, with gradients of their own, reached as torch.ops.<namespace>.<name>."""

from __future__ import annotations

import types

from tandem import Tensor
from tandem.autograd.function import Function
from tandem.errors import DTypeError, UnsupportedError, ValueRangeError

__all__ = ["CustomOpDef", "Library", "custom_op", "define", "impl", "register_autograd", "register_fake", "triton_op"]

_DEFINED: dict[str, CustomOpDef] = {}


class CustomOpDef:
    """A function that is one operator for gradients. Its kernel may use operators, NumPy, or anything else."""

    def __init__(self, name: str, fn):
        self._qualname, self._fn, self.__doc__ = name, fn, fn.__doc__
        self.__name__ = name.partition("::")[2]
        self._backward = self._setup = None
        self._function = self._make()

    def _make(self):
        definition = self

        class CustomOp(Function):
            @staticmethod
            def forward(ctx, *args):
                result = definition._fn(*(a.detach() if isinstance(a, Tensor) else a for a in args))
                if definition._setup is not None:
                    definition._setup(ctx, args, result)
                return result

            @staticmethod
            def backward(ctx, *grads):
                if definition._backward is None:
                    raise UnsupportedError(
                        definition._qualname,
                        "the operator has no gradient",
                        fix="give it one: op.register_autograd(backward)",
                    )
                return definition._backward(ctx, *grads)

        CustomOp.__name__ = self.__name__
        return CustomOp

    def __call__(self, *args, **kwargs):
        if kwargs:  # in the order of the parameters
            names = self._fn.__code__.co_varnames[: self._fn.__code__.co_argcount]
            args = (*args, *(kwargs.pop(n) for n in names[len(args) :] if n in kwargs))
            if kwargs:
                raise DTypeError(self._qualname, f"there is no parameter {', '.join(kwargs)}")
        return self._function.apply(*args)

    def register_autograd(self, backward, /, *, setup_context=None):
        """backward(ctx, *grads) gives a gradient for each argument; setup_context(ctx, inputs, output) keeps what it needs."""
        self._backward, self._setup = backward, setup_context

    def register_fake(self, fn, /):
        """Accepted: shapes come from running the function."""
        return fn

    def register_kernel(self, device_types, fn=None, /):
        """Another function for the same operator. The last one registered serves all devices."""
        if fn is None:
            return lambda f: self.register_kernel(device_types, f)
        self._fn = fn
        return fn


class _Namespace(types.SimpleNamespace):
    def __getattr__(self, name):
        raise AttributeError(f"torch.ops has no such operator: {name!r}; torch.library.custom_op defines operators")


class _Operators:
    """torch.ops: what custom_op has defined."""

    @staticmethod
    def load_library(path):
        """Refuses: such libraries are compiled for PyTorch's runtime. Packages that can do without theirs catch OSError."""
        raise OSError(f"torch.ops.load_library: {path} is compiled for PyTorch's runtime, which is not here")

    def __getattr__(self, name):
        return _Namespace(**{q.partition("::")[2]: d for q, d in _DEFINED.items() if q.partition("::")[0] == name})


ops = _Operators()


def custom_op(name: str, fn=None, /, *, mutates_args=(), device_types=None, schema=None, tags=None):
    """Makes a function of tensors one operator, whose gradient is registered with it.

    >>> @td.torch.library.custom_op("mine::twice", mutates_args=())
    ... def twice(x: td.Tensor) -> td.Tensor:
    ...     return td.tensor(x.numpy() * 2)
    >>> twice.register_autograd(lambda ctx, g: g * 2)
    >>> x = td.ones(2, requires_grad=True)
    >>> td.torch.ops.mine.twice(x).sum().backward()
    >>> x.grad
    tensor([2., 2.])
    """
    if "::" not in name:
        raise ValueRangeError("custom_op", f"the name is {name!r}; it must be 'namespace::name'")
    if fn is None:
        return lambda f: custom_op(name, f, mutates_args=mutates_args)
    if mutates_args and mutates_args != "unknown":
        raise UnsupportedError(
            "custom_op",
            f"{name} writes its arguments {tuple(mutates_args)}; gradients would not know",
            fix="give new tensors back",
        )
    _DEFINED[name] = CustomOpDef(name, fn)
    return _DEFINED[name]


def _found(op) -> CustomOpDef:
    if isinstance(op, CustomOpDef):
        return op
    if op not in _DEFINED:
        raise ValueRangeError("library", f"there is no operator {op!r}; torch.library.custom_op defines operators")
    return _DEFINED[op]


def register_autograd(op, backward, /, *, setup_context=None, lib=None):
    """The gradient of an operator of custom_op."""
    _found(op).register_autograd(backward, setup_context=setup_context)


def register_fake(op, fn=None, /, *, lib=None, _stacklevel=1):
    """Accepted, also for operators that are defined later: shapes come from running the function."""
    return fn if fn is not None else lambda f: f


def _left_out(name: str):
    def refuse(*args, **kwargs):
        raise UnsupportedError(
            name, "operators are not declared by schema strings here",
            fix="use torch.library.custom_op, or td.ops' @op: docs/adding_an_operator.md",
        )  # fmt: skip

    refuse.__name__ = name
    refuse.__doc__ = "Refuses: use custom_op."
    return refuse


Library, define, impl, triton_op = (_left_out(name) for name in ("Library", "define", "impl", "triton_op"))
