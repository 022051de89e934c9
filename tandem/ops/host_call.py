"""Steps of a program that Python computes: what runs other programs in turn, as vertex programs do.

Note [Host calls]
What is called is data: an integer tensor has the number of a `HostFunction`, so that one program serves every call. A function is
kept from the call that was captured until its program has run; only the last few are, for programs that never run. Its gradient is
another step, which is given the operands once more: where the first step has kept nothing (it ran in another program, or backward
comes a second time), it computes the results again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol
from weakref import WeakValueDictionary

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import AutogradError, InternalError, UnsupportedError
from tandem.graph.ir import Type
from tandem.ops.define import LibraryOp, op, register

_MOST = 64


def _no_file(op):
    """A graph of a file must not name functions of this process."""
    raise UnsupportedError(op, "it calls a function of the process that made the graph, which no file can bring along",
                           fix="save what the function is made of")  # fmt: skip


_functions: OrderedDict[int, HostFunction] = OrderedDict()
_kept: WeakValueDictionary[int, HostFunction] = WeakValueDictionary()  # those that somebody else holds: nodes of graphs
_made = 0  # functions so far; their numbers count up to it


class HostFunction(Protocol):
    """What a step calls."""

    def run(self, operands: list) -> list:
        """The results."""

    def backward(self, operands: list, grads: list) -> list:
        """The gradients of the operands, None where there is none, given those of the results."""


@register
class HostCall(LibraryOp):
    """number (), operands -> results (n, *row) each, where n is the first operand's: rows as (dtype, shape)."""

    name = "host_call"
    routine = "host_call"
    effect = True
    may_fail = True
    takes = "i64[] ?[*]..."
    rows: tuple

    def checked_inputs(self, inputs, symbols):
        _no_file(self)

    def infer(self, number: Type, *operands: Type):
        made = tuple(Type(dtypes.as_dtype(d), (operands[0].shape[0], *shape)) for d, shape in self.rows)
        return made[0] if len(made) == 1 else made

    def attributes(self, *types):
        return (0,), ()

    def grad(self, g, number, *operands):
        gs = g if isinstance(g, (tuple, list)) else (g,)
        wanted = tuple(i for i, x in enumerate(operands) if x.dtype.is_inexact)
        made = HostCallBackward(len(operands), wanted)(number, *operands, *gs)
        made = iter(made if isinstance(made, tuple) else (made,))
        return (None, *(next(made) if i in wanted else None for i in range(len(operands))))


@register
class HostCallBackward(LibraryOp):
    """number (), operands, gradients of the results -> those of the operands that are wanted."""

    name = "host_call_backward"
    routine = "host_call"
    effect = True
    may_fail = True
    takes = "i64[] ?[*]..."
    count: int
    wanted: tuple

    def checked_inputs(self, inputs, symbols):
        _no_file(self)

    def infer(self, number: Type, *rest: Type):
        made = tuple(rest[i] for i in self.wanted)
        return made[0] if len(made) == 1 else made

    def attributes(self, *types):
        return (1 + self.count,), ()

    def grad(self, g, *inputs):
        raise AutogradError("vertex", "gradients of gradients do not pass through a vertex program inside td.compile",
                            fix="leave out td.compile where create_graph=True")  # fmt: skip


@op(internal=True)
def host_step(number: Tensor, operands: Tensors, rows):
    return HostCall(rows)(number, *operands)


def call_on_host(function: HostFunction, operands: list, rows: tuple) -> list:
    """Results of a function as a step of the program that is captured. rows: (name of a dtype, shape) of a row of each."""
    global _made
    number = _made
    _made += 1
    _functions[number] = function
    while len(_functions) > _MOST:
        _functions.popitem(last=False)
    made = host_step(_runtime.from_data(number, dtypes.int64), operands, rows)
    return list(made) if isinstance(made, tuple) else [made]


def keep_function(function: HostFunction) -> int:
    """A number for a function that the caller holds as long as it may be called."""
    global _made
    _made += 1
    _kept[_made - 1] = function
    return _made - 1


def calls_made() -> int:
    """How many calls there were so far: who captures a program can tell whether there are some in it."""
    return _made


def run_step(form: int, operands: list) -> list:
    """What the runtime calls. form: 0 forward, else 1 more than the function has operands."""
    number, *operands = operands
    function = _functions.get(int(number)) or _kept.get(int(number))
    if function is None:
        raise InternalError("host_call", "the function of a step is gone")
    with _runtime.PauseCapture():
        if form == 0:
            return [t.contiguous() for t in function.run(operands)]
        own, grads = operands[: form - 1], operands[form - 1 :]
        found = function.backward(own, grads)
        return [
            F.zeros_like(x) if g is None else g.contiguous()
            for x, g in zip(own, found, strict=True)
            if x.dtype.is_inexact
        ]
