"""What every operator function takes besides its own parameters: out=, inplace=, memory_format=, and what means nothing here.

Note [out=]
A call with out= runs a form of the operator whose first argument is `out` and whose result goes into its memory: the kernels that
would have made a new tensor write there, and nothing is copied. inplace=True is the same with the operator's first argument for
`out`. Shapes must agree: a tensor's memory is never exchanged, so that `out` does not grow as PyTorch's does.
"""

from __future__ import annotations

import tandem.ops as F
from tandem import hooks
from tandem.errors import DTypeError, ShapeError
from tandem.graph.ir import Value, is_tracing
from tandem.ops.define import ParameterSpec, make_function
from tandem.ops.memory_format import in_format
from tandem.ops.prepare import show_shape

_KINDS = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}


# What says nothing here: copies are never put off, memory is strided and pinned when asked by x.pin_memory().
MEANINGLESS = ("non_blocking", "sparse_grad", "layout", "pin_memory", "_stacklevel")


def call(function, args: tuple, kwargs: dict):
    """function(*args, **kwargs), where kwargs hold what all functions take, or args end with inplace."""
    positional = sum(not p.keyword_only for p in function.parameters)
    if len(args) == positional + 1 and "inplace" not in kwargs and getattr(function, "ends_inplace", False):
        args, kwargs["inplace"] = args[:-1], args[-1]
    if len(args) > positional and function.variadic < 0:
        raise TypeError(f"{function.__name__}() takes {positional} positional arguments but {len(args)} were given")
    out, inplace = kwargs.pop("out", None), kwargs.pop("inplace", False)
    own = {p.name for p in function.parameters}
    if kwargs.get("sparse_grad") and function is F.gather and out is None and not is_tracing():
        return _sparse_gather(*args, **{k: v for k, v in kwargs.items() if k != "sparse_grad"})
    for name in MEANINGLESS:
        if name not in own:
            kwargs.pop(name, None)
    memory_format = kwargs.pop("memory_format", None) if "memory_format" not in own else None
    if memory_format is not None:
        return in_format(call(function, args, {**kwargs, "out": out, "inplace": inplace}), memory_format)
    if inplace and out is None:
        first = args[0] if args else kwargs.get(function.parameters[0].name, kwargs.get("input"))
        # In a deferred graph nothing is written in place; its nodes give new values.
        out = None if isinstance(first, Value) else first
    if out is None:
        return function(*args, **kwargs)
    if is_tracing() or isinstance(out, Value):
        raise DTypeError(
            function.__name__, "out= has no meaning while a graph is built", fix="use what the call returns"
        )
    if isinstance(out, (tuple, list)):
        return store(function.__name__, function(*args, **kwargs), out)
    if out.numel() == 0 and not out.requires_grad:  # an empty one grows, as in PyTorch
        return store(function.__name__, function(*args, **kwargs), out)
    return _writing_form(function)(out, *args, **kwargs)


def _sparse_gather(x, axis=None, index=None, *, dim=None):
    return hooks.sparse_gather(x, dim if axis is None else axis, index)


def _writing_form(function):
    made = function.__dict__.get("_writing_form")
    if made is None:
        fn, name = function.__wrapped__.__wrapped__, function.__name__

        def write(out, *args, **kwargs):
            result = fn(*args, **kwargs)
            if isinstance(result, (tuple, list)):
                raise DTypeError(name, f"there are {len(result)} results, so out must be a tuple of as many tensors")
            _check(name, result, out)
            return result

        variadic = next((p.name for i, p in enumerate(function.parameters) if i == function.variadic), None)
        out = ParameterSpec("out", "tensor", True, None, False)
        made = function._writing_form = make_function(name, write, [out, *function.parameters], variadic, writes=1)
    return made


def _check(name: str, result, out):
    shapes = tuple(result.shape), tuple(out.shape)
    if len(shapes[0]) != len(shapes[1]) or any(a != b for a, b in zip(*shapes, strict=True)):
        raise ShapeError(
            name,
            f"the result has shape {show_shape(shapes[0])}, but out has {show_shape(shapes[1])}",
            fix="pass an out of the result's shape, for example one that an earlier call returned",
        )
    if _KINDS[result.dtype.kind] > _KINDS[out.dtype.kind]:
        raise DTypeError(name, f"the result is {result.dtype} and does not go into out, which is {out.dtype}")


def store(name: str, results, out):
    """Results of a function that is not one operator, copied into out."""
    if out is None:
        return results
    several = isinstance(results, (tuple, list))
    if several != isinstance(out, (tuple, list)) or (several and len(results) != len(out)):
        wanted = f"a tuple of {len(results)} tensors" if several else "one tensor"
        raise DTypeError(name, f"out must be {wanted}")
    for result, target in zip(results, out, strict=True) if several else [(results, out)]:
        if target.numel() == 0 and tuple(target.shape) != tuple(result.shape):
            target.resize_(*result.shape)
        _check(name, result, target)
        F.copy_(target, result)
    if not several:
        return out
    return type(results)(*out) if hasattr(results, "_fields") else tuple(out)
