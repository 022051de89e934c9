"""Functions of tandem with PyTorch's names for parameters, and its rules for what may be a number."""

from __future__ import annotations

import tandem as td
from tandem.errors import DTypeError
from tandem.graph.ir import Value
from tandem.ops.extras import store


def named(name: str, function, *names: str):
    """function, whose positional parameters go by these names; "a|b" are two names of one."""
    names = [n.split("|") for n in names]
    function = taking_out(name, function)

    def call(*args, **kwargs):
        for alternatives in names[len(args) :]:
            found = next((n for n in alternatives if n in kwargs), None)
            if found is None:
                break
            args = (*args, kwargs.pop(found))
        return function(*args, **kwargs)

    return _as(call, name, function)


def taking_out(name: str, function):
    """function with out=, where it is a plain one without: operators take it by themselves."""
    code = getattr(function, "__code__", None)
    if code is None or "out" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return function

    def call(*args, out=None, **kwargs):
        made = function(*args, **kwargs)
        return made if out is None else store(name, made, out)

    return _as(call, name, function)


# Parameters of functions of two operands that are none.
_OPTIONS = ("dtype", "out")


def of_tensors(name: str, function, needed: int):
    """function, of whose two operands the first (needed 1), both (2), or either (0) must be tensors."""

    def call(*args, **kwargs):
        operands = (*args, *(v for k, v in kwargs.items() if k not in _OPTIONS))[:2] if kwargs else args[:2]
        tensors = [isinstance(operand, (td.Tensor, Value)) for operand in operands]
        if not (any(tensors) if needed == 0 else all(tensors[:needed])):
            operand = operands[tensors.index(False)] if tensors else None
            raise DTypeError(
                name, f"an operand is a {type(operand).__name__}; it must be a tensor", fix="use torch.tensor(...)"
            )
        return function(*args, **kwargs)

    return _as(call, name, function)


def _as(call, name: str, function):
    call.__name__ = call.__qualname__ = name
    call.__doc__ = function.__doc__
    return call
