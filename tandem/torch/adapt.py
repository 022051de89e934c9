"""Functions of tandem with PyTorch's names for parameters, and its rules for what may be a number."""

from __future__ import annotations

import tandem as td
from tandem.errors import DTypeError
from tandem.graph.ir import Value


def named(name: str, function, *names: str):
    """function, whose positional parameters go by these names; "a|b" are two names of one."""
    names = [n.split("|") for n in names]

    def call(*args, **kwargs):
        for alternatives in names[len(args) :]:
            found = next((n for n in alternatives if n in kwargs), None)
            if found is None:
                break
            args = (*args, kwargs.pop(found))
        return function(*args, **kwargs)

    return _as(call, name, function)


def of_tensors(name: str, function, needed: int):
    """function, of whose two operands the first (needed 1), both (2), or either (0) must be tensors."""

    def call(input, *args, **kwargs):
        other = args[0] if args else kwargs.get("other", input)
        tensors = [isinstance(operand, (td.Tensor, Value)) for operand in (input, other)]
        if not (any(tensors) if needed == 0 else all(tensors[:needed])):
            operand = input if not tensors[0] else other
            raise DTypeError(
                name, f"an operand is a {type(operand).__name__}; it must be a tensor", fix="use torch.tensor(...)"
            )
        return function(input, *args, **kwargs)

    return _as(call, name, function)


def _as(call, name: str, function):
    call.__name__ = call.__qualname__ = name
    call.__doc__ = function.__doc__
    return call
