"""Tensors of the device "meta": a shape and a dtype without memory.

An operator that is called with one is not run: its Python body is traced, as for a plan, and what comes back has the shapes and
dtypes of the graph's results. Operators that write leave such a tensor as it is.
"""

from __future__ import annotations

from tandem import _runtime, dtypes
from tandem.devices import META, is_meta
from tandem.errors import DeviceError, DTypeError, UnsupportedError
from tandem.graph.ir import Builder, Graph, Type, Value
from tandem.ops.define import add_input, traced_for
from tandem.ops.getitem import getitem
from tandem.tensors.parts import TensorInParts
from tandem.tracing.compile import NUMBER_DTYPES, RandomState, Traced, Tracing, autocast_dtype

Tensor = _runtime.Tensor


class MetaTensor(TensorInParts):
    """A tensor without elements, made by device="meta". Results of operators on it are such tensors as well."""

    kind = "meta"
    is_meta = True
    is_cpu = False
    device = META
    grad_fn = None
    _wants_grad = False
    _computed = False  # by an operator, from tensors that require gradients
    _grad = None

    # -- what there is of it

    @property
    def requires_grad(self) -> bool:
        return self._wants_grad

    @requires_grad.setter
    def requires_grad(self, value: bool):
        self._wants_grad = bool(value)

    @property
    def is_leaf(self) -> bool:
        return not self._computed

    @property
    def grad(self):
        return self._grad

    @grad.setter
    def grad(self, value):
        self._grad = value

    def detach(self):
        return empty(self.shape, self.dtype)

    def detach_(self):
        self._wants_grad = self._computed = False
        return self

    @property
    def data(self):
        return self.detach()

    @data.setter
    def data(self, value):
        raise DeviceError(
            "data", "a meta tensor cannot be given memory", fix="replace the tensor: module.to_empty(device='cpu')"
        )

    def retain_grad(self):
        """There will be no gradient to keep."""

    def stride(self, dim=None):
        strides, step = [], 1
        for n in reversed(self.shape):
            strides.insert(0, step)
            step *= max(n, 1)
        return tuple(strides) if dim is None else strides[dim]

    def is_contiguous(self, *args, **kwargs) -> bool:
        return True

    def storage_offset(self) -> int:
        return 0

    def data_ptr(self) -> int:
        return 0

    def __getitem__(self, index):
        for part in index if isinstance(index, tuple) else (index,):
            if isinstance(part, Tensor) and part.dtype is dtypes.bool_:
                raise UnsupportedError(
                    "getitem", "how many elements a mask takes of a meta tensor is unknown: it has no elements"
                )
        return getitem(self, index)

    def __setitem__(self, index, value):
        """Nothing is written."""

    def __iter__(self):
        return iter([self[i] for i in range(len(self))])

    def __reversed__(self):
        return self

    # -- elsewhere

    def to(self, *args, dtype=None, device=None, non_blocking=False, copy=False, memory_format=None):
        for a in args:
            if isinstance(a, Tensor):
                dtype, device = a.dtype, a.device
            elif (
                isinstance(a, dtypes.DType)
                or a in (float, int, bool, complex)
                or (isinstance(a, str) and dtypes.is_name(a))
            ):
                dtype = a
            elif (not isinstance(a, bool) and hasattr(a, "type")) or isinstance(a, str):
                device = a
        if device is not None and not is_meta(device):
            self._no_memory("to")
        dtype = self.dtype if dtype is None else dtypes.as_dtype(dtype)
        if dtype is self.dtype:
            return self.clone() if copy else self
        made = empty(self.shape, dtype)
        made._wants_grad = made._computed = self._wants_grad and dtype.is_inexact
        return made

    def _no_memory(self, name: str):
        raise UnsupportedError(
            name,
            f"this is a meta tensor of shape {tuple(self.shape)}, which has no elements",
            fix="give the module memory first: module.to_empty(device='cpu'), or load_state_dict(state, assign=True)",
        )

    def backward(self, *args, **kwargs):
        self._no_memory("backward")

    def numpy(self, *args, **kwargs):
        raise DTypeError("numpy", "this is a meta tensor, which has no elements")

    __array__ = numpy

    def clone(self, *args, **kwargs):
        made = empty(self.shape, self.dtype)
        made._wants_grad = made._computed = self._wants_grad
        return made

    def __deepcopy__(self, memo):
        made = _runtime.make_in_parts(type(self), self.dtype, tuple(self.shape), 0)
        made.__dict__.update(self.__dict__)
        memo[id(self)] = made
        return made

    __copy__ = clone

    def __reduce_ex__(self, protocol):
        return _rebuilt, (tuple(self.shape), self.dtype, self._wants_grad)

    def __repr__(self):
        text = f"tensor(..., device='meta', size={tuple(self.shape)}"
        if self.dtype is not dtypes.default_float():
            text += f", dtype={self.dtype}"
        return text + (", requires_grad=True)" if self._wants_grad else ")")

    __str__ = __repr__

    def __format__(self, spec):
        return format(repr(self), spec)


def empty(shape, dtype) -> MetaTensor:
    """A meta tensor."""
    return MetaTensor.make(dtype, shape, 0)


def like(x) -> MetaTensor:
    """What is left of a tensor on the device meta."""
    if isinstance(x, MetaTensor):
        return x
    made = empty(x.shape, x.dtype)
    made.requires_grad = x.requires_grad
    return made


def _rebuilt(shape, dtype, requires_grad):
    made = empty(shape, dtype)
    made.requires_grad = requires_grad
    return made


def member(cls, data: MetaTensor):
    """A Parameter or Buffer (cls) without elements."""
    kind = _members.get(cls)
    if kind is None:
        kind = _members[cls] = type(cls.__name__, (MetaTensor, cls), {"__repr__": _shown_as_member})
    return _runtime.make_in_parts(kind, data.dtype, tuple(data.shape), 0)


_members: dict[type, type] = {}


def _shown_as_member(x):
    return f"{type(x).__name__} containing:\n{MetaTensor.__repr__(x)}"


# -- operators


def result_of(function, arguments: tuple):
    """What an operator function gives for these arguments, one of which is a meta tensor or stands for one."""
    if function.writes:
        written = arguments[: function.writes]
        for x in written:
            if not isinstance(x, MetaTensor):
                raise UnsupportedError(function.__name__, "a meta tensor has no elements that could be written")
        return written[0] if function.writes == 1 else written
    wanted = _runtime.grad_enabled() and any(t.requires_grad for t in _tensors(function, arguments))

    def wrap(v):
        if not isinstance(v, Value):
            return v
        made = empty([int(n) for n in v.shape], v.dtype)
        made._wants_grad = made._computed = wanted and v.dtype.is_inexact
        return made

    result = _traced(function, arguments)
    return [wrap(v) for v in result] if isinstance(result, (tuple, list)) else wrap(result)


def _tensors(function, arguments):
    """The tensors among the arguments. Others than meta tensors may only be single elements, or indices."""
    for a in arguments:
        for x in a if isinstance(a, (tuple, list)) else (a,):
            if not isinstance(x, Tensor):
                continue
            if not isinstance(x, MetaTensor) and x.ndim > 0 and x.dtype.is_inexact:
                raise DeviceError(
                    function.__name__,
                    f"one tensor is on meta, and another of shape {tuple(x.shape)} on {x.device}",
                    fix="bring both to one device: x.to('meta')",
                )
            yield x


def _traced(function, arguments: tuple):
    graph = Graph(name=function.__name__)
    builder = Builder(graph)
    traced = Traced(graph)

    def value(x):
        if isinstance(x, Tensor):
            return add_input(builder, Type(x.dtype, tuple(x.shape)))
        return x

    with traced_for(autocast_dtype(0), False), builder, Tracing():
        positional, keywords = [], {}
        for parameter, a in zip(function.parameters, arguments, strict=True):
            if parameter.kind == "generator":
                seed, offset = (add_input(builder, Type(dtypes.int64, ())) for _ in range(2))
                a = RandomState(seed, offset, traced)
            elif parameter.kind in ("tensor", "optional_tensor") and isinstance(a, (bool, int, float, complex)):
                a = add_input(builder, Type(NUMBER_DTYPES.get(type(a).__name__, dtypes.int64), (), weak=True))
            elif isinstance(a, (tuple, list)):
                a = type(a)(map(value, a)) if type(a) in (tuple, list) else tuple(map(value, a))
            else:
                a = value(a)
            if parameter.keyword_only:
                keywords[parameter.name] = a
            else:
                positional.append(a)
        return function.__wrapped__.__wrapped__(*positional, **keywords)


def made(function, *args, **kwargs):
    """A creation function's result on meta, called as it would be elsewhere."""
    given = list(args)
    for parameter in function.parameters[len(args) :]:
        given.append(kwargs.get(parameter.name, parameter.default))
    return result_of(function, tuple(given))
