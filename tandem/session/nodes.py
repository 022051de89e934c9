"""What the nodes of a deferred graph are: calls of operators, and what only such graphs have.

Each `run(trace, node, operands)` gives the node's results as Values of the program being traced (program.py).
"""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.autodiff.reverse import backpropagate
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Type, Value, current_builder
from tandem.graph.substitution import substitute
from tandem.graph.symbolic import Sym, hint
from tandem.ops.define import Composite, Op, register
from tandem.ops.prepare import as_value, cast
from tandem.session.unknown import show_shape
from tandem.tensors.constructors import tensor

RANKS = {
    "bool": 0,
    "uint": 1,
    "int": 1,
    "float": 2,
    "complex": 3,
}  # values of a kind fit into those of the same or a higher rank


class Operand:
    """In a recorded argument: the node's i-th input."""

    __slots__ = ("index",)

    def __init__(self, index: int):
        self.index = index


class Random:
    """In a recorded argument: the random numbers of the run, or a stream of their own, whose seed is the node's i-th input."""

    __slots__ = ("index",)

    def __init__(self, index: int | None):
        self.index = index


class Drawn:
    """In a recorded argument: random numbers from a place on; the node's inputs of these numbers are seed and offset of the run."""

    __slots__ = ("offset", "seed", "start")

    def __init__(self, seed: int, offset: int, start: int):
        self.seed, self.offset, self.start = seed, offset, start

    def stream(self, operands) -> _Drawing:
        return _Drawing(operands[self.seed], operands[self.offset], self.start)


class _Drawing:
    def __init__(self, seed: Value, offset: Value, start: int):
        self.seed = seed
        self._offset, self._used = offset, start

    def take(self, count) -> Value:
        first, self._used = self._used, self._used + count
        return F.Add()(self._offset, F.Constant(first, dtypes.int64)())


class Number:
    """In a recorded argument: a Python number where a tensor may stand, which adapts to the tensors it meets."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class WeakConstant(F.Constant):
    """A Python number as operators see it."""

    def infer(self) -> Type:
        return Type(self.dtype, (), weak=True)


def _weak(value) -> Value:
    dtype = dtypes.bool_ if isinstance(value, bool) else dtypes.float64 if isinstance(value, float) else dtypes.int64
    return WeakConstant(value, dtype)()


def map_leaves(change, x):
    if isinstance(x, (list, tuple)):
        made = [map_leaves(change, y) for y in x]
        return made if isinstance(x, list) else type(x)(*made) if hasattr(x, "_fields") else tuple(made)
    if isinstance(x, dict):
        return {k: map_leaves(change, y) for k, y in x.items()}
    return change(x)


class _Text(str):
    """Shown as it is."""

    __slots__ = ()
    __repr__ = str.__str__


class Step(Op):
    """An operator of a deferred graph. Two of them are never the same."""

    differentiable = True
    hand_wired = False
    blocking = False  # whether it may wait for other runs
    writes = False  # whether it changes a variable
    is_placeholder = is_variable = is_held = is_seed = False  # what comes from outside (Fed)
    collective = False  # whether all ranks must run it, in one order with others
    everywhere = True  # whether loops may use its results where it takes nothing of a run
    condition = 0  # a number for when its results are live, where others decide that
    after = ()  # nodes that what it gives depends on by a way that is not in the graph
    saved: tuple[
        str, ...
    ]  # what a file keeps of it: attributes, in the order in which the constructor takes them (serialize.py)
    KINDS: dict[str, type] = {}  # those that files may hold, by the name of their class

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "saved" in cls.__dict__:
            Step.KINDS[cls.__name__] = cls

    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__
    _key = property(lambda self: self, lambda self, key: None)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)

    def __repr__(self):
        return self.name

    def result_name(self, node: str, index: int) -> str:
        """What one of its results is called, where its node is called so."""
        return f"{node}:{index}"


class Call(Step):
    """A call of an operator function."""

    saved = ("function", "args", "kwargs", "written", "present", "is_tuple")

    def __init__(self, function, args, kwargs, written: tuple = (), present: tuple = (), is_tuple: bool = False):
        super().__init__()
        self.name = function.__name__
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.written = written  # variables that the results go to, of an operator that works in place
        self.present = present  # which results are there; others are None
        self.is_tuple = is_tuple

    @property
    def writes(self) -> bool:
        return bool(self.written)

    @property
    def collective(self) -> bool:
        return self.function.role.effect

    def shown(self, operands: list[str]) -> str:
        """Its arguments as a printed graph has them: matmul(%0, %1, transpose=True)."""

        def leaf(x):
            if isinstance(x, Operand):
                return _Text(operands[x.index])
            if isinstance(x, Random):
                return _Text("random" if x.index is None else f"random({operands[x.index]})")
            if isinstance(x, (Number, Sym)):
                return _Text(str(getattr(x, "value", x)))
            return x

        named = [f"{name}={map_leaves(leaf, x)!r}" for name, x in self.kwargs.items() if x is not None]
        return ", ".join([*(repr(map_leaves(leaf, x)) for x in self.args), *named])

    def run(self, trace, node, operands):
        def change(x):
            if isinstance(x, Operand):
                return operands[x.index]
            if isinstance(x, Number):
                return _weak(x.value)
            if isinstance(x, Random):
                return trace.random_state(None if x.index is None else operands[x.index])
            if isinstance(x, Drawn):
                return x.stream(operands)
            if isinstance(x, Sym):
                return substitute(x, trace.sizes)
            return x

        args, kwargs = map_leaves(change, self.args), map_leaves(change, self.kwargs)
        result = self.function.__wrapped__.__wrapped__(*args, **kwargs)
        self.is_tuple = isinstance(result, (tuple, list))
        return list(result) if self.is_tuple else [result]


class Primitive(Step):
    """A primitive operator applied directly."""

    saved = ("op",)

    def __init__(self, op):
        super().__init__()
        self.name = op.name
        self.op = op

    @property
    def collective(self) -> bool:
        return self.op.effect

    def run(self, trace, node, operands):
        result = self.op.substitute(lambda d: substitute(d, trace.sizes))(*operands)
        return list(result) if isinstance(result, tuple) else [result]


class Fed(Step):
    """A value that comes from outside: a placeholder, a variable, a tensor that the graph holds, or the seed of a stream of random
    numbers, which is `tensor` in a session's first run and another one in each run after it."""

    differentiable = False
    saved = ("name", "tensor")

    def __init__(self, name: str, tensor=None):
        super().__init__()
        self.name = name
        self.is_placeholder, self.is_variable = name == "placeholder", name == "variable"
        self.is_held, self.is_seed = name == "constant", name == "seed"
        self.tensor = tensor


class Group(Step):
    """Nothing but the nodes it depends on."""

    name = "group"
    saved = ()

    def run(self, trace, node, operands):
        return []


class Identity(Step):
    """Its operand, at this point of the program."""

    name = "identity"
    saved = ()

    def run(self, trace, node, operands):
        return [operands[0]]


@register
class Replaced(Composite):
    """What a run was fed in place of what it would have computed; gradients go on to the latter."""

    name = "replaced"
    takes_complex = True
    holomorphic = False

    def infer(self, computed: Type, given: Type) -> Type:
        if any(a != b for a, b in zip(computed.shape, given.shape, strict=True)):
            sizes = [tuple(hint(d) for d in t.shape) for t in (given, computed)]
            raise ShapeError(
                self,
                f"{sizes[0]} is fed for what is {sizes[1]} in this run, so gradients cannot pass from one to the other",
                fix="feed a tensor of that shape",
            )
        return Type(given.dtype, given.shape)

    def expand(self, computed, given):
        return given

    def grad(self, g, computed, given):
        return g, None


class Detach(Step):
    """Its operand, as something that gradients do not pass through."""

    name = "detach"
    differentiable = False
    saved = ()

    def run(self, trace, node, operands):
        return [F.StopGradient()(operands[0])]


# What stores make of the old value and their operands, by name: change(old, *operands) -> new. Others are plain assignments.
CHANGES = {"assign_add": lambda old, x: F.add(old, x), "assign_sub": lambda old, x: F.subtract(old, x)}


class Store(Step):
    """Changes a variable."""

    differentiable = False
    saved = ("name", "variable")

    def __init__(self, name: str, variable):
        super().__init__()
        self.name = name
        self.variable = variable
        self.change = CHANGES.get(name)
        self.writes = True

    @property
    def reads(self) -> bool:
        return self.change is not None

    def shown(self, operands: list[str]) -> str:
        return ", ".join([self.variable.node.name, *operands])

    def run(self, trace, node, operands):
        value = operands[0]
        if self.change is not None:
            value = self.change(trace.variable(self.variable), *operands)
        return [trace.store(self.variable, value, node)]


class Gradients(Step):
    """Gradients of the first `ys` operands with respect to the next `xs`; incoming gradients come last.
    apart: see backpropagate."""

    name = "gradients"
    saved = ("ys", "xs", "given", "apart")

    def __init__(self, ys: int, xs: int, given: tuple[bool, ...], apart: bool = False):
        super().__init__()
        self.ys = ys
        self.xs = xs
        self.given = given
        self.apart = apart

    def shown(self, operands: list[str]) -> str:
        ys, xs = operands[: self.ys], operands[self.ys : self.ys + self.xs]
        rest = iter(operands[self.ys + self.xs :])
        parts = [ys, xs] + ([[next(rest) if has else "None" for has in self.given]] if any(self.given) else [])
        return ", ".join(f"[{', '.join(part)}]" for part in parts)

    def run(self, trace, node, operands):
        ys = operands[: self.ys]
        computed = max((v.node for v in node.inputs[: self.ys]), key=lambda n: n.id)
        xs = [
            trace.variable_at(v, computed) if trace.is_variable(v) else x
            for v, x in zip(node.inputs[self.ys : self.ys + self.xs], operands[self.ys :], strict=False)
        ]
        given = iter(operands[self.ys + self.xs :])
        # A gradient may be asked of a result in more than one dtype or shape; it adapts to the result.
        incoming = [_like(next(given), y) if has else F.ones_like(y) for has, y in zip(self.given, ys, strict=True)]
        results = backpropagate(list(current_builder().graph.nodes), ys, incoming, xs, self.apart)
        return [F.zeros_like(x) if g is None else g for g, x in zip(results, xs, strict=True)]


def _like(g: Value, y: Value) -> Value:
    return F.expand(cast(g, y.dtype), y.shape)


class Print(Step):
    """Passes its first operand on; the others are printed after the run, in order."""

    name = "print"
    saved = ("message", "first_n", "summarize")

    def __init__(self, message: str, first_n: int | None, summarize: int | None):
        super().__init__()
        self.message = message
        self.first_n = first_n
        self.summarize = summarize
        self.printed = 0

    def shown(self, operands: list[str]) -> str:
        return f"{operands[0]}, [{', '.join(operands[1:])}]" + (f", {self.message!r}" if self.message else "")

    def run(self, trace, node, operands):
        trace.printed(node, operands[1:])
        return [operands[0]]


class Host(Step):
    """Something done by Python, between programs. `call(node, tensors, cancellation)` gives tensors."""

    differentiable = False
    placed = False  # whether `call` is told the context of the run and the key of the iteration too
    always = False  # whether it runs when an operand is dead, which is None then


class PyFunc(Host):
    """A Python function of arrays, which are on the host: operands elsewhere are copied, and results go where operands are."""

    name = "py_func"

    def __init__(self, function, types: tuple[Type, ...]):
        super().__init__()
        self.function = function
        self.types = types

    def shown(self, operands: list[str]) -> str:
        return f"{getattr(self.function, '__name__', type(self.function).__name__)}, [{', '.join(operands)}]"

    def call(self, node, operands, cancellation) -> list:
        there = max(map(_runtime.device_index, operands), default=0) or _runtime.default_device()
        arrays = [t.cpu().numpy() for t in operands]
        for a in arrays:
            a.flags.writeable = False  # the memory is that of a feed, of a variable, of other steps of the run
        try:
            results = self.function(*arrays)
        except Exception as error:
            error.add_note(f"  in the function of {node.name!r} (py_func), built at {node.source}")
            if isinstance(error, ValueError) and "read-only" in str(error):
                error.add_note(
                    "  fix: arrays that py_func gives to a function are read-only; change a copy: x = x.copy()"
                )
            raise
        if len(node.outputs) == 1 and not isinstance(results, (list, tuple)):
            results = [results]
        count = len(results) if hasattr(results, "__len__") else None
        if count != len(node.outputs):
            found = type(results).__name__ if count is None else f"{count} results"
            raise ValueRangeError(
                "py_func",
                f"the function of {node.name!r} gave {found}; as many as it has dtypes are expected, {len(node.outputs)}",
                fix="return one for each dtype that py_func was given, in a list or tuple",
                source=node.source,
            )
        made = [self._result(value, v) for value, v in zip(results, node.outputs, strict=True)]
        return [_runtime.move(t, there) for t in made] if there else made

    def _result(self, value, v: Value):
        """What the function gave for v, as a tensor of the dtype that it was said to have."""
        import numpy

        source = v.node.source
        if value is None or isinstance(value, (str, bytes)):
            raise DTypeError(
                "py_func",
                f"the function of {v.node.name!r} gave {value!r} for {v.name!r}, which is {v.dtype}",
                fix="return an array or a number; for its effect alone, return one that nobody reads",
                source=source,
            )
        try:
            given = tensor(numpy.asarray(value))
        except (TypeError, ValueError) as error:
            raise DTypeError(
                "py_func",
                f"the function of {v.node.name!r} gave a {type(value).__name__} for {v.name!r}, which is {v.dtype}: "
                f"{getattr(error, 'rule', error)}",
                fix="return an array or a number",
                source=source,
            ) from None
        if RANKS[given.dtype.kind] > RANKS[v.dtype.kind] and given.numel():
            raise DTypeError(
                "py_func",
                f"the function of {v.node.name!r} gave {given.dtype} for {v.name!r}, which is {v.dtype}",
                fix=f"give py_func the dtype {given.dtype}, or convert in the function: x.astype({v.dtype.name!r})",
                source=source,
            )
        if not fits(given.shape, v.type.shape):
            raise ShapeError(
                "py_func",
                f"{v.name!r} is {show_shape(v.type.shape)} and the function gave {tuple(given.shape)}",
                fix="pass shape= to py_func",
                source=source,
            )
        return given.to(v.dtype)


def fits(shape, declared) -> bool:
    """Whether sizes are those declared, where sizes are declared."""
    return len(shape) == len(declared) and all(
        not isinstance(n, int) or n == m for n, m in zip(declared, shape, strict=True)
    )


def as_results(values) -> list[Value]:
    return [v if v is None else as_value(v) for v in values]
