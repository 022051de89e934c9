"""What operators may be applied to: the rules that a graph from a file must satisfy, since nothing else has looked at it.

Functions that users call check their arguments, and primitives rely on it. A file holds primitives. Each of them says next to its
declaration what it takes:

    takes = "T[*b,m,k] T[*b,k,n] T[n]?"     types of its operands: one name, one size; *b is any number of sizes,
                                            * any number of any
    rule(*types)                            raises unless attributes and operands fit, where `takes` does not say it all
    bounds(*types)                          operands that hold positions, which must be below a bound

A type in `takes` is T (any, the same for all T), F (a float, the same for all F), M (what LAPACK has, the same for all M), I (an
integer), ? (any) or the short name of one (i64). After an operand, ? says that it may be missing, ... that more like it may follow.

`obey` asks all of this. Sizes may be symbolic: what is asked of them becomes a guard of the trace, so that it is asked again for
other sizes. The verifier asks with concrete sizes (`obey_concrete`), which leaves no guards. What depends on values is checked
when the graph runs: `checked_inputs`, which builders call while graphs of files are rebuilt (`checking` in graph/ir.py).
"""

from __future__ import annotations

import functools
import re

import tandem.ops as F
from tandem import dtypes, hooks
from tandem.errors import DTypeError, IndexRangeError, ShapeError, TandemError, ValueRangeError
from tandem.graph.ir import Graph, Type
from tandem.graph.symbolic import Sym, hint, product

MOST = 2**63  # sizes, strides and their products are int64
MOST_AXES = 32

FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
_MATRICES = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)
_SHORT = {d.short: d for d in dtypes.ALL}


def need(op, holds, text: str, fix: str | None = None):
    """What must hold of sizes."""
    if not holds:
        raise ShapeError(op, text, fix)


def allowed(op, holds, text: str, fix: str | None = None):
    """What must hold of attributes."""
    if not holds:
        raise ValueRangeError(op, text, fix)


# -- asking


def obey(op, types):
    """Raises a TandemError unless op may be applied to operands of these types."""
    _attributes(op)
    if hasattr(op, "graphs"):
        op.rule(*types)  # its graphs are graphs, and have rules of their own
        return
    _operands(op, types)
    for f, kind in _kinds(type(op)):
        if f == "axis" and kind == "int" and op.axis_of is not None:
            inside(op, op.axis, op.axis_of(*types))
        elif f == "axes" and kind == "tuple" and op.axis_of is not None:
            distinct_axes(op, op.axes, op.axis_of(*types))
    op.rule(*types)


def obey_concrete(op, types):
    """`obey` with concrete sizes, without guards."""
    op = op._with_sizes(_hints) if hasattr(op, "graphs") else op.substitute(_hints)
    types = [Type(t.dtype, _hints(t.shape), t.weak) for t in types]
    obey(op, types)


def _hints(x):
    if isinstance(x, tuple):
        return tuple([_hints(y) for y in x])
    return hint(x) if isinstance(x, Sym) else x


def checked_inputs(op, inputs, symbols):
    """inputs of an operator of a file, after looking at them: what holds positions is checked when it runs."""
    types = [v.type for v in inputs]
    if not getattr(symbols, "inferring", False) or not mentions_sizes(
        op, types
    ):  # else asked again when sizes are known
        for t in types:
            sizes_fit(op, t)
        obey(op, types)
    bounds = op.bounds(*types)
    if not bounds:
        return inputs
    inputs = list(inputs)
    for k, (bound, axis, *negative) in bounds.items():
        if not _in_range(inputs[k], bound):
            inputs[k] = F.index.CheckIndex(bound, axis, bool(negative))(inputs[k])
    return tuple(inputs)


def _in_range(index, bound) -> bool:
    """Whether the graph shows that positions are in range: they were checked, and only moved since, or count to the bound."""
    while isinstance(index.op, F.define.Movement) and index.op.name != "embed":
        index = index.node.inputs[0]
    op = index.op
    if isinstance(op, F.index.CheckIndex) and op.name == "check_index":
        return not op.negative and _same(op.bound, bound)
    return isinstance(op, F.Iota) and _same(op.shape[op.axis], bound)


def _same(a, b) -> bool:
    return a is b or (type(a) is int and type(b) is int and a == b)


def mentions_sizes(op, types) -> bool:
    """Whether a size among its attributes or operands is symbolic."""
    return any(_symbolic(getattr(op, f)) for f in op._fields) or any(_symbolic(t.shape) for t in types)


def _symbolic(x) -> bool:
    return isinstance(x, Sym) or (isinstance(x, tuple) and any(map(_symbolic, x)))


def sizes_fit(op, t: Type):
    """Whether a tensor of this type can be: as many axes and bytes as there may be, none negative."""
    need(op, len(t.shape) <= MOST_AXES, f"{t!r} has {len(t.shape)} axes; there may be {MOST_AXES}")
    # sizes that are not known have a hint that says nothing (session/unknown.py)
    whole = [hint(d) for d in t.shape if not (isinstance(d, Sym) and hasattr(d.symbols, "inferring"))]
    need(op, all(n >= 0 for n in whole), f"{t!r} has a negative size")
    need(
        op,
        product([n for n in whole if n]) * t.dtype.itemsize < MOST,
        f"{t!r} takes more bytes than 64 bits can count",
    )


# -- attributes


@functools.cache
def _kinds(cls) -> tuple[tuple[str, str], ...]:
    """(attribute, its annotation) of an operator."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        for name, kind in base.__dict__.get("__annotations__", {}).items():
            if name in cls._fields:
                found[name] = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    return tuple(found.items())


_NUMBER = (bool, int, float, complex)
_ACCEPTS = {
    "int": lambda x: isinstance(x, int) and -MOST <= x < MOST,
    "bool": lambda x: isinstance(x, bool),
    "float": lambda x: isinstance(x, float) or (isinstance(x, int) and abs(x) < MOST),
    "str": lambda x: isinstance(x, str),
    "tuple": lambda x: isinstance(x, tuple) and all(map(_plain, x)),
    "object": lambda x: x is None or isinstance(x, (Sym, *_NUMBER)),
    "Type": lambda x: isinstance(x, Type),
    "Graph": lambda x: isinstance(x, Graph),
    "Graph | None": lambda x: x is None or isinstance(x, Graph),
    "dtypes.DType": lambda x: isinstance(x, dtypes.DType),
    "DType": lambda x: isinstance(x, dtypes.DType),
    "dtypes.DType | None": lambda x: x is None or isinstance(x, dtypes.DType),
}


def _plain(x) -> bool:
    """Sizes, and tuples of them, are what tuples hold."""
    if isinstance(x, tuple):
        return all(map(_plain, x))
    return isinstance(x, (Sym, Graph)) or _ACCEPTS["int"](x)


def _attributes(op):
    for f, kind in _kinds(type(op)):
        if not hasattr(op, f):
            raise ValueRangeError(op.name, f"its attribute {f} is missing")
        x = getattr(op, f)
        accepts = _ACCEPTS.get(kind)
        if accepts is None or not accepts(x):
            raise ValueRangeError(op.name, f"its attribute {f} is {str(x)[:60]}; it must be {_SAID.get(kind, kind)}")


_SAID = {
    "int": "an integer of 64 bits", "bool": "true or false", "float": "a number", "str": "text", "object": "a size",
    "tuple": "a tuple of integers of 64 bits", "dtypes.DType": "a dtype",
}  # fmt: skip


def size(op, name: str, d, least: int = 0):
    """An attribute that is a size."""
    allowed(op, isinstance(d, (int, Sym)), f"{name} is {d!r}; it must be a size")
    signed = least < 0 and isinstance(d, Sym)  # whatever it is: a guard with such a constant would overflow
    allowed(op, (signed or d >= least) and hint(d) < MOST, f"{name} is {hint(d)}; it must be from {least} to 2**63")


def sizes(op, name: str, dims, count: int | None = None, least: int = 0):
    """An attribute that is so many sizes."""
    allowed(op, isinstance(dims, tuple), f"{name} is {dims!r}; it must be sizes")
    need(op, count is None or len(dims) == count, f"{name} is {dims}; it must have {count} sizes")
    for d in dims:
        size(op, name, d, least)


def inside(op, axis: int, ndim: int, name: str = "axis"):
    if not 0 <= axis < max(ndim, 1):
        raise IndexRangeError(op, f"{name} is {axis}; there are {ndim} axes")


def distinct_axes(op, axes, ndim: int):
    for a in axes:
        allowed(op, isinstance(a, int), f"axes are {axes}; they must be integers")
        inside(op, a, ndim, "one of the axes")
    need(op, ndim or not axes, f"axes are {axes}, of a tensor that has none")
    allowed(op, len(set(axes)) == len(axes), f"axes are {axes}; each may be there once")


def one_of(op, name: str, value, choices):
    allowed(op, value in choices, f"{name} is {value!r}; it must be one of {', '.join(map(str, choices))}")


# -- operands

_VARARGS, _VARKEYWORDS = 0x04, 0x08  # flags of code objects: *args, **kwargs


@functools.cache
def _counts(cls) -> tuple[int, float]:
    """Fewest and most operands, as its own functions have parameters."""
    if cls.takes:
        _, least, most = _pattern(cls.takes)
        return least, most
    elementwise = issubclass(cls, F.define.Elementwise)
    code = (cls.body if elementwise else cls.infer).__code__  # inspect, which would do, takes long to import
    fixed = code.co_argcount - (2 if elementwise else 1)
    more = code.co_kwonlyargcount or code.co_flags & (_VARARGS | _VARKEYWORDS)
    return fixed, float("inf") if more else fixed


def _operands(op, types):
    least, most = _counts(type(op))
    if not least <= len(types) <= most:
        how = f"{least}" if least == most else f"{least} or more" if most > 1000 else f"{least} to {most}"
        raise ValueRangeError(op.name, f"it takes {how} operands; there are {len(types)}")
    for t in types:
        if t.dtype.is_complex and not op.takes_complex:
            raise DTypeError(op.name, f"an operand is {t.dtype}; it is not defined for complex numbers")
    if op.takes:
        match(op, op.takes, types)


_OPERAND = re.compile(r"(\w+|\?)\[([^\]]*)\](\?|\.\.\.)?")


@functools.cache
def _pattern(text: str):
    """([(kind, sizes)], fewest, most) of what an operator takes."""
    found = [(kind, tuple(s for s in inner.split(",") if s), more) for kind, inner, more in _OPERAND.findall(text)]
    least = sum(more == "" for _, _, more in found)
    most = float("inf") if found[-1][2] == "..." else len(found)
    return [(kind, inner) for kind, inner, _ in found], least, most


def match(op, text: str, types) -> dict:
    """Sizes by their names in `text`, or an error."""
    pattern, _, _ = _pattern(text)
    sizes: dict = {}
    one: dict[str, dtypes.DType] = {}
    for i, t in enumerate(types):
        kind, inner = pattern[min(i, len(pattern) - 1)]
        if not _is_kind(kind, t.dtype, one):
            raise DTypeError(op.name, f"operands are {_shown(types)}; it takes {text}, and operand {i} is {t.dtype}")
        if not _are_sizes(inner, t.shape, sizes):
            raise ShapeError(op.name, f"operands are {_shown(types)}; it takes {text}")
    return sizes


def _shown(types) -> str:
    return ", ".join(map(repr, types)) or "none"


def _is_kind(kind: str, dtype, one: dict) -> bool:
    if kind == "?":
        return True
    if kind == "I":
        return dtype.is_integer
    if kind in _SHORT:
        return dtype is _SHORT[kind]
    if (kind == "F" and dtype not in FLOATS) or (kind == "M" and dtype not in _MATRICES):
        return False
    return one.setdefault(kind, dtype) is dtype


def _are_sizes(inner: tuple[str, ...], shape: tuple, known: dict) -> bool:
    star = next((i for i, name in enumerate(inner) if name[0] == "*"), None)
    if len(shape) != len(inner) if star is None else len(shape) < len(inner) - 1:
        return False
    if star is not None:
        after = len(inner) - star - 1
        many = shape[star : len(shape) - after]
        before = many if inner[star] == "*" else known.setdefault(inner[star], many)
        if len(before) != len(many) or any(a != b for a, b in zip(before, many, strict=True)):
            return False
        inner, shape = inner[:star] + inner[star + 1 :], shape[:star] + shape[len(shape) - after :]
    return all(
        d == (int(name) if name.isdigit() else known.setdefault(name, d)) for name, d in zip(inner, shape, strict=True)
    )


# -- elementwise operators


def elementwise(op, types):
    """All shapes are one or (), and the operator computes with such types."""
    shape = next((t.shape for t in types if t.shape), ())
    for t in types:
        fits = not t.shape or (len(t.shape) == len(shape) and all(a == b for a, b in zip(t.shape, shape, strict=True)))
        need(op, fits, f"operands are {_shown(types)}; they must have one shape, or none")
    _computes(op, tuple(t.dtype for t in types))


_computed: dict = {}


def _computes(op, kinds: tuple):
    key = (op, kinds)
    error = _computed.get(key, key)
    if error is key:
        error = _computed[key] = _try(op, kinds)
    if error is not None:
        raise DTypeError(op.name, f"operands are {', '.join(map(str, kinds)) or 'none'}; {error}")


def _try(op, kinds) -> str | None:
    """What is wrong with the operator on such elements: its body, written out once, says."""
    b, compute_dtype = hooks.scalar_builder()
    try:
        made = op.body(b, *[b.make("var", (), compute_dtype(k), i) for i, k in enumerate(kinds)])
        result = op.result_dtype(*kinds)
    except (
        TandemError,
        TypeError,
        ValueError,
        KeyError,
        IndexError,
        AttributeError,
        AssertionError,
        ArithmeticError,
    ) as error:
        return f"it is not defined for them ({str(error) or type(error).__name__})"
    wrong = _misused(made)
    if wrong is not None:
        return f"it is not defined for them ({wrong})"
    if not result.is_complex and hasattr(made, "dtype") and made.dtype not in (result, compute_dtype(result)):
        return f"it makes {made.dtype} of them, not {result}"
    return None


_BITS = ("and", "or", "xor", "not", "shl", "shr")
_OF_FLOATS = ("sqrt", "floor", "ceil", "trunc", "round", "fma", "isnan", "near_angle", "copysign")


def _misused(made) -> str | None:
    """What no target computes, of an expression: bits of floats, choices by numbers."""
    stack, seen = [made], set()
    while stack:
        e = stack.pop()
        if not hasattr(e, "args") or id(e) in seen:
            continue
        seen.add(id(e))
        if e.op in _BITS and any(x.dtype.kind == "float" for x in e.args):
            return f"{e.op} of {e.args[0].dtype}"
        if e.op in _OF_FLOATS and any(x.dtype.kind != "float" for x in e.args):
            return f"{e.op} of {e.args[0].dtype}"
        if e.op == "complex" and e.args[0].dtype is not e.args[1].dtype:
            return f"parts that are {e.args[0].dtype} and {e.args[1].dtype}"
        if e.op == "where" and e.args[0].dtype is not dtypes.bool_:
            return f"a choice by {e.args[0].dtype}"
        stack.extend(e.args)
    return None
