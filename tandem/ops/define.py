"""How operators are defined: the Op base classes, the registry, and `@op`, which makes a function callable in every mode.

A primitive operator is a small frozen class:

    infer(*types) -> Type       the only shape and type rule; eager, trace and verifier all call it
    grad(g, *inputs) -> ...     gradients with respect to the inputs, written with operators. None where there is no gradient.
                                Keyword-only parameters ask for more: `out` is the operator's output, `vjp(fn, inputs, grads)`
                                gives gradients of a formula, `wanted` says which are asked for (autodiff/reverse.py).
    body(b, *scalars) -> scalar elementwise operators: the scalar expression; the builder b serves every renderer

What users call are functions marked `@op`. Eagerly such a function is a C++ callable: the first call with a new signature
traces the Python body into a graph and compiles it to a plan; later calls never enter Python.

What a primitive may be applied to is said beside it too, for graphs that come from files: see rules.py.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import DTypeError
from tandem.graph.ir import Builder, Graph, Type, Value, call_recorder, current_builder, is_tracing, recorder_of
from tandem.graph.primitives import PRIMITIVES
from tandem.graph.symbolic import Sym
from tandem.ops import rules

FUNCTIONS: dict[
    str, object
] = {}  # everything public: operator functions, plain functions over them, other names for either
INTERNAL: dict[
    str, object
] = {}  # operator functions for other operators, found as F.name but not in the public namespace
HIDDEN: dict[
    str, object
] = {}  # operator functions that plain functions of the namespace wrap, by the names that their calls have
METHODS: set[str] = set()  # those of them that Tensor has as methods
OWN_METHODS: dict[str, object] = {}  # methods that are not, or not the same as, functions of the namespace


class _Tracing(threading.local):
    """What the operator is traced for that this thread traces."""

    on_device = False  # a CUDA device
    autocast_dtype = None  # under td.autocast: the type for products
    axes_first = None  # whether tensors without axes adapt to others, None: asked of tandem/promotion.py
    devices: dict[Value, str] = {}  # of inputs that are tensors


tracing = _Tracing()


@contextlib.contextmanager
def traced_for(autocast_dtype, on_device: bool):
    """While inside, this thread traces an operator for a device, with products in the type that td.autocast asks for and the
    promotion that its call asks for."""
    before = tracing.autocast_dtype, tracing.on_device, tracing.axes_first
    tracing.autocast_dtype, tracing.on_device, tracing.axes_first = autocast_dtype, on_device, _runtime.axes_first()
    try:
        yield
    finally:
        tracing.autocast_dtype, tracing.on_device, tracing.axes_first = before


def lowered(inputs):
    """Inputs of a product in the type that td.autocast asks for, if it does."""
    wanted = tracing.autocast_dtype
    if wanted is None:
        return inputs
    made = []
    for x in inputs:
        if x.dtype in (dtypes.float32, dtypes.float16, dtypes.bfloat16) and x.dtype is not wanted:
            widened = isinstance(x.op, F.Cast) and x.node.inputs[0].dtype is wanted
            x = x.node.inputs[0] if widened else F.Cast(wanted)(x)
        made.append(x)
    return tuple(made)


class Op:
    """A primitive operator with its attributes. Equal ops hash equal, for plans and common subexpressions."""

    name = ""
    _fields: tuple[str, ...] = ()
    _grad_asks: tuple[str, ...] = ()  # keyword-only parameters of grad
    effect = False  # whether running it is the point: never removed, merged or run twice
    stays = False  # whether it runs though nobody reads its results, as checks do; it may be merged with an equal one
    checks = False  # whether its results are its operands, after it has looked at what they hold; else an error
    # Whether grad is a rule for holomorphic functions, g times the derivative: for complex numbers the derivative is conjugated
    # (tandem/autodiff/reverse.py). Operators that are linear with real coefficients, or say what they do themselves, are not.
    holomorphic = True
    takes_complex = True  # whether inputs may be complex; kernels and library calls say so where they may
    sparse_grads = False  # of several outputs: whether grad takes None for those that no gradient reached
    is_input = False  # whether it is where an input of the graph comes in
    commutative = False  # whether its two operands may change places without changing a bit of the result
    samples = False  # whether it gives random numbers
    # Where the axis of a batch goes (tandem/transforms/batching.py): "leading" in front, as it works along the last axes or
    # everywhere alike; "alike" so too, for operands of one rank; "axis", "axes" in front, and these fields count it; "first"
    # into the first axis. "" where it has a rule there, or none.
    batching = ""
    output_strides = None  # (types, buffers) -> strides of the results, where the operator chooses them
    bodies = ()  # of branches and loops in deferred graphs
    fuses = False  # whether it becomes part of a kernel with its neighbours, so that what is between them is never in memory
    rearranges = False  # whether elements only change places: a view, or part of what reads it
    takes = ""  # types of its operands, for files of graphs (rules.py)
    axis_of = staticmethod(lambda *types: types[0].ndim)  # how many axes `axis` and `axes` count; None: they do not

    def __init__(self, *args, **kwargs):
        for field, value in zip(self._fields, args, strict=False):
            object.__setattr__(self, field, value)
        for field, value in kwargs.items():
            object.__setattr__(self, field, value)
        object.__setattr__(self, "_key", (type(self), *(getattr(self, f) for f in self._fields)))

    def __setattr__(self, name, value):
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __eq__(self, other):
        return type(self) is type(other) and self._key == other._key

    def __hash__(self):
        return hash(self._key)

    def __repr__(self):
        if not self._fields:
            return self.name
        return f"{self.name}[{', '.join(f'{f}={getattr(self, f)}' for f in self._fields)}]"

    def shown(self, operands: list[str]) -> str:
        """Its arguments as a printed graph has them; calls of deferred graphs have more than their operands."""
        return ", ".join(operands)

    low_precision = False  # whether td.autocast brings its float32 inputs to 16 bits

    def __call__(self, *inputs) -> Value | tuple[Value, ...]:
        if self.low_precision:
            inputs = lowered(inputs)
        node = current_builder().add(self, inputs)
        return node.outputs[0] if len(node.outputs) == 1 else node.outputs

    def substitute(self, change) -> Op:
        """This operator with `change` applied to every attribute that may hold sizes."""
        if not self._fields:
            return self
        return type(self)(
            *(
                change(getattr(self, f)) if isinstance(getattr(self, f), (tuple, Sym)) else getattr(self, f)
                for f in self._fields
            )
        )

    def made_of(self, kind: str, inputs) -> Callable | None:
        """What builds its results from other operators on targets of this kind ("cpu", "cuda"; "" for any), given its inputs;
        None where it has code of its own."""
        if self.split_complex is not None and inputs and inputs[0].dtype.is_complex:
            return self.split_complex
        return None

    # -- what a primitive defines

    split_complex = (
        None  # a method that builds the result for complex inputs, where kernels compute with real ones only
    )

    def infer(self, *types, **_):
        """The type of the result for operands of these types, or a tuple of types. Primitives have parameters of their own."""
        raise NotImplementedError

    def grad(self, *args, **kwargs):
        """Gradients of the inputs for (g, *inputs), and what the rule asks for by keyword: out, vjp, wanted. None: no gradient."""

    def rule(self, *types: Type) -> None:
        """Raises unless attributes and operands fit, where `takes` does not say it all (rules.py)."""

    def bounds(self, *types: Type) -> dict[int, tuple]:
        """{operand: (bound, axis)} of those that hold positions, which must not be negative and be below the bound; a third item
        says that they may be negative."""
        return {}

    def operations(self, inputs: list[tuple], outputs: list[tuple]) -> int:
        """How many numbers are computed for operands and results of these shapes: two for each product that is added up, one for
        each element of what is made otherwise."""
        return math.prod(outputs[0])

    # -- what graphs ask of their operators (rules.py)

    def check_rules(self, types):
        """Raises unless it may be applied to operands of these types, with the sizes that they have now."""
        rules.obey_concrete(self, types)

    def checked_inputs(self, inputs, symbols):
        """inputs of a node of a file, after looking at them: what holds positions is checked when it runs."""
        return rules.checked_inputs(self, inputs, symbols)

    def check_sizes(self, t: Type):
        """Raises unless a tensor of this type can be."""
        rules.sizes_fit(self, t)


class Elementwise(Op):
    """Same index in, same index out. Inputs all have one shape, or are 0-d and broadcast."""

    takes_complex = False
    fuses = True
    fold = None  # a function of constants, where every arithmetic that we have agrees on its result; it may give None
    rounds = False  # whether that result has to be rounded, which is left to kernels for bool and 16-bit floats

    def infer(self, *types: Type) -> Type:
        return Type(self.result_dtype(*(t.dtype for t in types)), common_shape(types))

    def result_dtype(self, *inputs: dtypes.DType) -> dtypes.DType:
        """The type of an element of the result."""
        return inputs[0]

    def body(self, b, *scalars):
        """An element of the result as a scalar expression, made by the builder b, which serves every renderer."""
        raise NotImplementedError

    def rule(self, *types: Type):
        rules.elementwise(self, types)


class Movement(Op):
    """Rearranges elements without computing: output index -> input index."""

    fuses = rearranges = True
    holomorphic = False


class Composite(Op):
    """Made of other operators, with a gradient of its own.

    Differentiation sees one operator, so that softmax's gradient comes from its output and a normalisation's from mean and
    deviation; code generation sees what `expand` builds, which fuses with everything around it.
    """

    takes_complex = False

    def made_of(self, kind: str, inputs) -> Callable:
        return self.expand

    def expand(self, *args, **kwargs):
        """The results for these inputs, by other operators."""
        raise NotImplementedError


class LibraryOp(Op):
    """A call into src/library. `routine` names it; `attributes` gives its int and float arguments.

    An operator whose routine one kind of target has alone (`only_on`) says with `composed` what it is made of elsewhere.
    """

    routine = ""
    only_on = ""
    may_fail = False  # while it runs: by what its operands hold, not by their types and sizes
    cuda_library = ""  # of NVIDIA's that has the routine: cublas, cudnn, cusolver, nccl
    takes_complex = False
    overwrites = False  # whether the k-th result may lie where the k-th operand lies

    def made_of(self, kind: str, inputs) -> Callable | None:
        if self.only_on and kind and kind != self.only_on:
            return self.composed
        return super().made_of(kind, inputs)

    def composed(self, *inputs):
        """The results by other operators, for targets that have no such routine."""
        raise NotImplementedError

    def attributes(self, *types: Type) -> tuple[tuple, tuple]:
        """(ints, floats) for the call; ints may be symbolic."""
        return (), ()


def common_shape(types) -> tuple:
    for t in types:
        if t.shape:
            return t.shape
    return ()


def _claim(table: dict[str, object], name: str, thing) -> None:
    """table[name] = thing, unless the name means something else already. A definition that runs again replaces itself."""
    known = table.get(name)
    if known is not None and known is not thing and _definition(known) != _definition(thing):
        module, qualname = _definition(known)
        raise ValueError(
            f"an operator named {name!r} exists: {qualname} of {module}\n  fix: give the new one a name of its own"
        )
    table[name] = thing


def _definition(thing) -> tuple[str, str]:
    return thing.__module__, thing.__qualname__


def register(cls):
    """Makes a primitive known by its name, with its annotated fields as attributes. A name that another one has is refused."""
    fields = tuple(
        f
        for base in reversed(cls.__mro__)
        for f in base.__dict__.get("__annotations__", {})
        if not f.startswith("_") and f not in ("name", "routine")
    )
    cls._fields = fields
    code = cls.grad.__code__
    cls._grad_asks = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    _claim(PRIMITIVES, cls.name, cls)
    return cls


@register
class Input(Op):
    """Where a graph's inputs come in."""

    name = "input"
    is_input = True
    fuses = True
    position: int
    type: Type

    def infer(self):
        return self.type


def add_input(builder: Builder, type: Type) -> Value:
    value = builder.add(Input(len(builder.graph.inputs), type), ()).outputs[0]
    builder.graph.inputs.append(value)
    return value


_KINDS = {
    "Tensor": "tensor",
    "Factor": "tensor",  # or a number that must fit what the tensors promote to, where they are integers
    "Divisor": "tensor",  # a factor that must not be 0 where the first operand holds integers
    "Written": "tensor",  # or a number that must fit the integers that it is written into
    "Tensor | None": "optional_tensor",
    "Factor | None": "optional_tensor",
    "Written | None": "optional_tensor",
    "Tensors": "tensors",
    "Int": "int",
    "Int | None": "int",
    "Ints": "ints",
    "Ints | None": "ints",
    "Generator | None": "generator",
}
_CHECKED = {
    "Divisor": "divisor", "Factor": "factor", "Factor | None": "optional_factor", "Written": "written",
    "Written | None": "optional_written",
}  # fmt: skip


class ParameterSpec:
    """One parameter of an operator function; `kind` says how the dispatcher treats it (src/operators/op_function.h)."""

    __slots__ = ("name", "kind", "required", "default", "keyword_only", "check", "axes")

    def __init__(self, name, kind, required, default, keyword_only, check="", axes=False):
        self.name = name
        self.kind = kind
        self.check = check  # "divisor", "factor", "written": what numbers are looked at for when arguments are bound
        self.axes = axes  # that are reduced: none of them may stand for all (tandem/promotion.py)
        self.required = required
        self.default = default
        self.keyword_only = keyword_only

    def as_tuple(self):
        return (self.name, self.check or self.kind, self.required, self.default, self.keyword_only)


def _parameters(fn) -> list[ParameterSpec]:
    fn = getattr(fn, "__wrapped__", fn)
    code = fn.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    defaults = fn.__defaults__ or ()
    first_default = code.co_argcount - len(defaults)
    keyword_defaults = fn.__kwdefaults__ or {}
    result = []
    for i, name in enumerate(names):
        keyword_only = i >= code.co_argcount
        if keyword_only:
            required, default = name not in keyword_defaults, keyword_defaults.get(name)
        else:
            required = i < first_default
            default = None if required else defaults[i - first_default]
        annotation = fn.__annotations__.get(name)
        kind = _KINDS.get(annotation, "static")
        check = _CHECKED.get(annotation, "")
        result.append(ParameterSpec(name, kind, required, default, keyword_only, check, annotation == "Axes"))
    return result


class Backward(NamedTuple):
    """Of a function that runs backward: what joins it with its neighbours (tandem/tracing/joined.py) looks at."""

    graph: Graph | None = None  # None: of several, which are joined no further
    body: Callable | None = None
    outputs: int = 0  # of the forward function
    positions: list[int] = ()  # of its outputs that have gradients


class Role(NamedTuple):
    """How an operator function is compiled. The usual one: a single operator, for which passes do not pay."""

    whole: bool = False  # a program of many operators, which goes the way of all programs
    own_results: int | None = None  # results get memory of their own; so many of the last are no views either
    recompute: bool = False  # td.checkpoint: backward keeps nothing but inputs and outputs
    backward: Backward | None = None
    report: list | None = None  # notes what was compiled, and says how (tandem/program/report.py)
    effect: bool = False  # running it is the point, as of its primitive: for graphs that hold calls
    elementwise: bool = False  # a rule of an optimiser that works on each element for itself
    moves: bool = False  # operands on other devices are brought to where the first one is
    lazy_sums: bool = False  # backward may give summands of weight gradients: see tandem/autodiff/lazy_sums.py


OPERATOR = Role()


def make_function(name: str, fn, parameters: list[ParameterSpec], variadic: str | None = None, writes: int = 0,
                  role: Role = OPERATOR, digest: str | None = ""):  # fmt: skip
    """An operator function of fn.

    digest: a text that tells it from all others in whatever process, None if there is none, "" to go by the name of fn.
    """
    positional = sum(not p.keyword_only for p in parameters)
    position = next((i for i, p in enumerate(parameters) if p.name == variadic), -1)

    def inline(*args, **kwargs):
        """How the function joins the graph being built: a trace takes its body in, a deferred graph the call as such."""
        if is_tracing():
            recorder = call_recorder()
            return fn(*args, **kwargs) if recorder is None else recorder.call(function, args, kwargs)
        return recorder_of(name, args, kwargs).call(function, args, kwargs)

    inline.__wrapped__ = fn
    function = _runtime.OpFunction(name, inline, [p.as_tuple() for p in parameters], positional, position, writes)
    function.parameters = parameters
    function.role = role
    function.digest = digest
    function.variadic = position
    function.writes = writes  # in place: its results go into the memory of so many of its first arguments
    function.__doc__ = fn.__doc__
    function.__qualname__ = name
    function.__module__ = fn.__module__
    return function


def op(fn=None, *, name: str | None = None, variadic: str | None = None, hidden: bool = False, internal: bool = False,
       method: bool = True, mutates: tuple = ()) -> Any:  # fmt: skip
    """Makes a Python function an operator function: callable on tensors (plans) and on symbolic values (inlined).

    Annotations tell what parameters are: "Tensor", "Tensor | None", "Tensors", "Int"/"Ints" (numbers a plan computes with,
    so that new values need no new plan), "Generator | None"; all others are static and specialise the plan. `variadic` names
    the Ints parameter that may be given loose: x.reshape(2, 3). A hidden one is not in the namespace: a plain function of that
    name wraps it. An internal one is reached as F.name by other operators only. Tensor has the others as methods too where their
    first parameter is a tensor, unless `method` is False.
    `mutates` names parameters, the first ones, whose memory takes the results in place; the first of them is what a call returns.
    Where the body gives more results than that, a call returns them all; this is for eager calls only.
    """
    if fn is None:
        return lambda f: op(
            f, name=name, variadic=variadic, hidden=hidden, internal=internal, method=method, mutates=mutates
        )
    parameters = _parameters(fn)
    if any(p.name != m or p.kind != "tensor" for p, m in zip(parameters, mutates, strict=False)) or len(
        parameters
    ) < len(mutates):
        raise DTypeError(
            fn.__name__, f"it writes {', '.join(mutates)}, which must be its first parameters, and be annotated as tensors",
            fix=f"def {fn.__name__}({', '.join(f'{m}: Tensor' for m in mutates)}, ...)",
        )  # fmt: skip
    function = make_function(name or fn.__name__, fn, parameters, variadic, len(mutates))
    if hidden:
        HIDDEN.setdefault(function.__name__, function)
        return function
    _claim(INTERNAL if internal else FUNCTIONS, function.__name__, function)
    if internal:
        return function
    if method and function.parameters and function.parameters[0].kind == "tensor":
        METHODS.add(function.__name__)
    return function


def public(fn=None, *, name: str | None = None, method: bool = False):
    """Makes a plain Python function over operators part of the namespace (and a method of Tensor, if asked).

    Arguments annotated "Tensor" are made tensors first: they may be numbers, lists or arrays.
    """
    if fn is None:
        return lambda f: public(f, name=name, method=method)
    code = fn.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    tensors = [(i, n) for i, n in enumerate(names) if fn.__annotations__.get(n) == "Tensor"]
    synonyms = {}
    for given, ours in _runtime.PARAMETER_ALIASES:
        if ours in names and given not in names:
            synonyms.setdefault(given, ours)
    fn = _prepare_arguments(fn, tensors, synonyms, names)
    _claim(FUNCTIONS, name or fn.__name__, fn)
    if method:
        METHODS.add(name or fn.__name__)
    return fn


def method(fn=None, *, name: str | None = None):
    """Makes a plain Python function a method of Tensor only; it comes before a function of the same name."""
    if fn is None:
        return lambda f: method(f, name=name)
    OWN_METHODS[name or fn.__name__] = fn
    return fn


def _prepare_arguments(fn, tensors, synonyms, names):
    takes_out = "out" not in names
    dropped = tuple(n for n in ("layout", "pin_memory") if n not in names)
    takes_format = "memory_format" not in names

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        out = memory_format = None
        if kwargs:
            if takes_out:
                out = kwargs.pop("out", None)
            if takes_format:
                memory_format = kwargs.pop("memory_format", None)
            for name in dropped:
                kwargs.pop(name, None)
            if synonyms:
                kwargs = {synonyms.get(k, k): v for k, v in kwargs.items()}
        for i, name in tensors:
            if i < len(args):
                if type(args[i]) is not _runtime.Tensor:
                    args = (*args[:i], as_tensor(fn.__name__, name, args[i]), *args[i + 1 :])
            elif name in kwargs:
                kwargs[name] = as_tensor(fn.__name__, name, kwargs[name])
        if out is None and memory_format is None:
            return fn(*args, **kwargs)
        made = F.memory_format.in_format(fn(*args, **kwargs), memory_format)
        return F.extras.store(fn.__name__, made, out)

    return wrapper


def as_tensor(function: str, parameter: str, value):
    """value as a tensor: itself, or one made from numbers, lists or an array."""
    if isinstance(value, (_runtime.Tensor, Value)):
        return value
    if isinstance(value, (str, bytes, dict, set)) or value is None:
        raise DTypeError(function, f"{parameter} is a {type(value).__name__}; it must be a tensor")
    return F.from_data.asarray(value)


def alias(name: str, function):
    """Another name for a function, e.g. PyTorch's for NumPy's."""
    _claim(FUNCTIONS, name, function)
    if function.__name__ in METHODS:
        METHODS.add(name)
    return function


def inplace(function, name: str | None = None, role: Role = OPERATOR):
    """The in-place form of an operator function: its result is stored into the first argument."""
    name = name or function.__name__ + "_"
    fn = function.__wrapped__.__wrapped__
    result = make_function(name, fn, function.parameters, None, writes=1, role=role)
    result.__doc__ = (
        f"In-place form of `{function.__name__}`: writes the result into the first argument and returns it."
    )
    if function.__name__ in INTERNAL and name == function.__name__ + "_":
        _claim(INTERNAL, name, result)
        return result
    _claim(FUNCTIONS, name, result)
    METHODS.add(name)
    return result


def ends_inplace(*functions):
    """Has functions take `inplace` by position, after all their parameters, as PyTorch's of the same names do: relu(x, True)."""
    for function in functions:
        function.ends_inplace = True


# -- operator functions in pickles and copies: by name, so that the same object comes back


def _find(module: str | None, name: str):
    if module is None:
        return FUNCTIONS[name]
    import importlib

    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


def _reduce(function):
    if FUNCTIONS.get(function.__name__) is function:
        return _find, (None, function.__name__)
    return _find, (function.__module__, function.__wrapped__.__wrapped__.__qualname__)  # of what it was made from


copyreg.pickle(_runtime.OpFunction, _reduce)
