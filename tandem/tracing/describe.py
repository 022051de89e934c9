"""What the runtime tells of calls and their arguments (src/operators/describe.cc, src/capture/capture_program.cc), with names."""

from __future__ import annotations

from typing import NamedTuple

from tandem._runtime import LayoutClass, OperandKind

ROW_MAJOR, DENSE, STRIDED = LayoutClass.Contiguous.value, LayoutClass.Dense.value, LayoutClass.Strided.value
NO_OPERAND, LEAF, RESULT, NUMBER, INT = (kind.value for kind in OperandKind)


class TensorSpec(NamedTuple):
    """A tensor among the arguments, or an input of a program."""

    kind: str  # "tensor"
    dtype: int  # its code
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    layout: int  # ROW_MAJOR, DENSE under a permutation, STRIDED
    order: tuple[int, ...] | None  # DENSE: axes from the largest stride to the smallest
    requires_grad: bool
    device: int  # 0 the CPU, k cuda:(k - 1)


class ValueSpec(NamedTuple):
    """Another argument: a number that a plan computes with, a static value, how many tensors follow."""

    kind: str  # "float", "integer", "bool", "complex", "int", "seed", "offset", "static", "count", "none"
    value: object = None


class Operand(NamedTuple):
    """Where an operand of a captured call comes from."""

    kind: int  # NO_OPERAND, LEAF, RESULT, NUMBER, INT
    index: int  # of the leaf, call, number or int
    output: int  # of the call


class ResultSite(NamedTuple):
    """A result of a captured call."""

    call: int
    output: int


class WriteSite(NamedTuple):
    """A leaf, and the result that it has when the program is over."""

    leaf: int
    call: int
    output: int


class CallSpec(NamedTuple):
    """A captured call."""

    plan: object  # CapturedPlan (operator_plan.py)
    operands: list[Operand]
    temporaries: list[int]  # values of the plan that backward needs, numbered after the outputs
    code: object  # the user's line: its code object, or None
    line: int
    recorded: bool  # whether gradients were being recorded
    device: int  # of the innermost `with td.device(...)`, or -1


class Captured(NamedTuple):
    """A sequence of calls, as the runtime describes it (src/capture/capture_program.cc)."""

    calls: list[CallSpec]
    leaves: list[TensorSpec]
    numbers: list[ValueSpec]
    ints: list[int]
    outputs: list[ResultSite]
    writes: list[WriteSite]
    symbolic: bool
    ended: str
    report: list | None  # tandem/program/report.py
    first: int = 0  # calls of the function before these
    addresses: list[int] = []  # of the leaves; 0 where there is no memory yet

    @property
    def device(self) -> int:
        return self.calls[0].plan.device

    @property
    def devices(self) -> tuple[int, ...]:
        """All devices that calls run on or operands are on, if there are several."""
        return spanned(self.calls, [leaf for leaf in self.leaves if leaf.shape])

    @property
    def spec(self) -> list[TensorSpec | ValueSpec]:
        return [*self.leaves, *self.numbers, *(ValueSpec("int", v) for v in self.ints)]


def spanned(calls: list[CallSpec], leaves: list[TensorSpec] = ()) -> tuple[int, ...]:
    """The devices of captured calls and what they read, if there are several."""
    devices = {call.plan.device for call in calls} | {leaf.device for leaf in leaves}
    over = len(devices) > 1 or any(call.plan.over_devices for call in calls)
    return tuple(sorted(devices)) if over else ()


def spec_of(description: tuple) -> TensorSpec | ValueSpec:
    return TensorSpec._make(description) if description[0] == "tensor" else ValueSpec(*description)


def call_of(description: tuple) -> CallSpec:
    plan, operands, *rest = description
    return CallSpec(plan, [Operand._make(o) for o in operands], *rest)


def capture_of(calls, leaves, numbers, ints, outputs, writes, *rest) -> Captured:
    return Captured(
        [call_of(c) for c in calls], [spec_of(d) for d in leaves], [spec_of(d) for d in numbers], ints,
        [ResultSite._make(o) for o in outputs], [WriteSite._make(w) for w in writes], *rest,
    )  # fmt: skip
