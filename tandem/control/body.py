"""Bodies of loops and branches in compiled functions: captured by running them once on deferred tensors.

See Note [Capture of bodies] in src/capture/capture.h. What was captured becomes the body of a region inside an operator function,
which is called like any other: so it has plans, gradients, and a place in the program around it. The function is found again by
what was captured, not by the identity of the body: the body's Python code runs at each call of td.scan (not at each iteration), so
nothing that it looks at can go stale.
"""

from __future__ import annotations

import threading

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.control.regions import make_cond, make_scan, make_while
from tandem.errors import DeviceError, DTypeError, InternalError, UnsupportedError
from tandem.graph.ir import current_builder
from tandem.ops.define import ParameterSpec, Role, make_function
from tandem.program.report import budget_of
from tandem.tensors.constructors import asarray
from tandem.tracing.describe import LEAF, CallSpec, Operand, call_of, spec_of
from tandem.tree import Structure, flatten

RANDOM = ("seed", "offset")
_MOST_FUNCTIONS = 1024


class Taken:
    """A body as it was captured, for one call."""

    def __init__(self, scope, inputs: int, outputs: list, draws: int):
        self.inputs = inputs
        self.sites = tuple(Operand._make(scope.locate(t)) for t in outputs)
        self.leaves = scope.leaves()
        self.numbers = [spec_of(n) for n in scope.numbers()]
        self.ints = scope.ints()
        self.key = (scope.key(), self.sites, inputs)
        self.scope = scope
        offsets = [value for kind, value in self.numbers if kind == "offset"]
        self.first_offset = offsets[0] if offsets else 0
        self.deltas = [o - self.first_offset for o in offsets]
        self.draws = draws
        if not scope.default_generator_only():
            raise UnsupportedError(
                None,
                "random numbers inside a loop or branch come from the default generator only",
                fix="leave out generator=",
            )

    def calls(self) -> list[CallSpec]:
        return [call_of(c) for c in self.scope.calls()]

    @property
    def consts(self) -> list:
        return self.leaves[self.inputs :]

    def plain_numbers(self) -> list:
        return [value for kind, value in self.numbers if kind not in RANDOM]

    def all_ints(self) -> list[int]:
        return [*self.ints, *self.deltas, self.draws]


class Body:
    """What stays of a body in a function: the calls, and which of the function's arguments they use."""

    def __init__(self, taken: Taken, consts: list[int], numbers: int, ints: int, recording: bool):
        self.calls = taken.calls()
        self.plans = taken.scope.plans()
        self.sites = taken.sites
        self.inputs = taken.inputs
        self.consts = consts  # positions of its own among the constants of the function
        self.kinds = [kind for kind, _ in taken.numbers]
        self.first_number, self.first_int = numbers, ints
        self.num_ints, self.num_deltas = len(taken.ints), len(taken.deltas)
        self.random = "offset" in self.kinds
        self.recording = recording

    def trace(self, all_ints, inputs, consts, draws):
        from tandem.tracing.program import join_calls

        leaves = [*inputs[: self.inputs], *(consts[i] for i in self.consts)]
        # A size of 1 is literal, as everywhere: what was captured relies on it where it broadcasts.
        ints = [1 if i == 1 else i for i in all_ints[self.first_int :]]
        deltas = iter(ints[self.num_ints : self.num_ints + self.num_deltas])
        plain = iter(consts[self.first_number :])
        base = draws.used if draws is not None else 0
        numbers = [
            draws.seed if kind == "seed" else draws.at(base + next(deltas)) if kind == "offset" else next(plain)
            for kind in self.kinds
        ]
        if draws is not None:
            draws.used = base + ints[self.num_ints + self.num_deltas]
        joined = join_calls(current_builder(), self.calls, leaves, numbers, ints[: self.num_ints], self._cut)
        return [leaves[s.index] if s.kind == LEAF else joined[s.index, s.output] for s in self.sites]

    def _cut(self, value, recorded: bool):
        """What was computed without recording passes no gradients on."""
        if recorded or not self.recording or not value.dtype.is_inexact:
            return value
        return F.StopGradient()(value)


class Bound:
    """A body in a graph being built, where the integers that it was captured with are sizes."""

    def __init__(self, body: Body, ints):
        self.body, self.ints, self.random = body, ints, body.random

    @property
    def draws(self):
        """How many random counters it takes."""
        return self.ints[self.body.first_int :][self.body.num_ints + self.body.num_deltas]

    def trace(self, inputs, consts, draws):
        return self.body.trace(self.ints, inputs, consts, draws)


class Result:
    """What a body gives: tensors without memory, and the containers they came in."""

    def __init__(self, taken: Taken, leaves: list, structure: Structure):
        self.taken = taken
        self.leaves = leaves
        self.structure = structure


def device_of(operands: list) -> int:
    """Where a region with these operands runs, as the runtime numbers devices: single elements on the CPU go along."""
    if not operands:
        return _runtime.default_device()
    return max(_runtime.device_index(t) for t in operands)


class _Place(threading.local):
    names: tuple[str, ...] = ()  # what the bodies being captured are bodies of, the innermost last


_place = _Place()


def inside_body() -> bool:
    """Whether a body is being captured here, where tensors have no values that could be read."""
    return bool(_place.names)


def body_name() -> str | None:
    """What the innermost body that is being captured here is given to: scan, vmap and so on."""
    return _place.names[-1] if _place.names else None


def take_down(name: str, fn, inputs: list[tuple], finish=None, device: int = 0) -> Result:
    """Runs fn once on deferred tensors of these (dtype, shape, requires_grad). finish(value) may change what fn gives."""
    generator = _runtime.default_generator()
    before = generator.get_state()
    scope = _runtime.BodyScope(name)
    outer, _place.names = _place.names, (*_place.names, name)
    try:
        values = scope.enter([(dtype.code, shape, grad and dtype.is_inexact) for dtype, shape, grad in inputs], device)
        result = fn(*values)
        if finish is not None:
            result = finish(result)
        leaves, structure = flatten(result)
        leaves = [as_tensor(name, leaf) for leaf in leaves]
    finally:
        _place.names = outer
        scope.exit()
    draws = generator.get_state()[1] - before[1]
    return Result(Taken(scope, len(inputs), leaves, draws), leaves, structure)


def as_tensor(name: str, x):
    if isinstance(x, _runtime.Tensor):
        return x
    if isinstance(x, (str, bytes, set)) or callable(x):
        raise DTypeError(name, f"a {type(x).__name__} is neither a tensor nor a number")
    return asarray(x)


_functions: dict = {}
_PARAMETERS = [
    ParameterSpec("tensors", "tensors", True, None, False),
    ParameterSpec("numbers", "tensors", True, None, False),
    ParameterSpec("ints", "ints", True, None, False),
    ParameterSpec("generator", "generator", False, None, False),
]


def call_region(kind: str, parts: list[Taken], operands: list, state: tuple, *, carried: int = 0, scanned: int = 0,
                extent: int | None = None, reverse: bool = False) -> tuple:  # fmt: skip
    """Calls the operator function of a region. state: of the generator before any body was captured."""
    consts: list = []
    place: dict[int, int] = {}
    used = []
    numbers: list = []
    ints: list[int] = [extent or 0]
    firsts = []
    for part in parts:
        for t in part.consts:
            if id(t) not in place:
                place[id(t)] = len(consts)
                consts.append(t)
        used.append(tuple(place[id(t)] for t in part.consts))
        firsts.append((len(numbers), len(ints)))
        numbers += part.plain_numbers()
        ints += part.all_ints()
    _refuse_several_devices(kind, [*operands, *consts])
    recording = _runtime.grad_enabled()
    key = (
        kind,
        tuple(p.key for p in parts),
        tuple(used),
        len(operands),
        carried,
        scanned,
        extent is None,
        reverse,
        recording,
        budget_of(None),
    )
    function = _functions.get(key)
    if function is None:
        bodies = [
            Body(part, positions, len(consts) + first, at, recording)
            for part, positions, (first, at) in zip(parts, used, firsts, strict=True)
        ]
        if len(_functions) >= _MOST_FUNCTIONS:
            del _functions[next(iter(_functions))]
        make = _function(kind, bodies, len(operands), carried, scanned, extent is not None, reverse)
        function = _functions[key] = make_function(
            kind, make, _PARAMETERS, role=Role(whole=True), digest=_digest(key, bodies)
        )
    if any(p.draws for p in parts):
        _runtime.default_generator().set_state(state)
    return function([*operands, *consts], numbers, ints)


class SeveralDevices(DeviceError):
    """What a region reads is on several devices."""


def _refuse_several_devices(kind: str, tensors: list):
    """A region runs on one device, with all that it reads; single elements on the host go along."""
    found = list(dict.fromkeys(str(t.device) for t in tensors if t.ndim))
    if len(found) > 1:
        raise SeveralDevices(
            kind, f"what it reads is on several devices: {', '.join(found)}",
            fix="move tensors to one device before the loop or branch: x.to(device)",
        )  # fmt: skip


def region_or_python(region, python):
    """What region() gives, or, where that would need several devices, what plain Python gives: its operators are captured like any
    others, each where its operands are. Inside of another body the outermost one decides."""
    generator = _runtime.default_generator()
    state = generator.get_state()
    try:
        return region()
    except SeveralDevices:
        if inside_body():
            raise
    generator.set_state(state)
    return python()


def where_made(made, result: Result) -> list:
    """Results of a region, each where the body made it: a region runs on one device, and a body may move tensors."""
    wanted = [leaf.device if leaf.ndim else None for leaf in result.leaves]
    return [m if d is None or m.device == d else m.to(d) for m, d in zip(made, wanted, strict=True)]


def _digest(key, bodies: list[Body]) -> str | None:
    """What the function is made of, for programs that are kept on disk; None if a plan in it cannot tell."""
    digests = [call.plan.digest for body in bodies for call in body.calls]
    if None in digests:
        return None
    calls = [
        ([tuple(o) for o in call.operands], call.temporaries, call.recorded) for body in bodies for call in body.calls
    ]
    # the first of a part's key has addresses in it
    return repr(
        (digests, calls, [(body.kinds, body.num_ints) for body in bodies], key[0], [k[1:] for k in key[1]], key[2:])
    )


def _function(
    kind: str, bodies: list[Body], num_operands: int, carried: int, scanned: int, bounded: bool, reverse: bool
):
    def fn(tensors, numbers, ints, generator):
        operands, consts = tensors[:num_operands], [*tensors[num_operands:], *numbers]
        bound = [Bound(body, ints) for body in bodies]
        if kind == "cond":
            return tuple(make_cond(bound, operands[0], operands[1:], consts, generator))
        if kind == "while_loop":
            return tuple(make_while(*bound, operands, consts, ints[0] if bounded else None, generator))
        init, xs = operands[:carried], operands[carried:]
        length = ints[0]
        if scanned:
            length = xs[0].shape[0]
            if any(x.shape[0] != length for x in xs[1:]):  # asking teaches that these sizes are one
                raise InternalError(kind, "lengths differ")
        return tuple(make_scan(bound[0], init, xs, consts, length, reverse, generator))

    return fn


def spec(t, grad: bool, shape=None) -> tuple:
    """What a body is given in place of a tensor, for take_down."""
    return t.dtype, list(t.shape if shape is None else shape), grad


INDEX = (dtypes.int64, [], False)
