"""Tensors and operations of a deferred graph, as users hold them."""

from __future__ import annotations

import contextlib

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.devices import as_device
from tandem.errors import DTypeError, UnsupportedError, user_source
from tandem.graph.ir import Node, Value, revise
from tandem.graph.symbolic import Sym, product
from tandem.ops.define import Op
from tandem.ops.memory_format import MemoryFormat
from tandem.ops.torch_names import Size
from tandem.session.current import current_session
from tandem.session.nodes import Detach, Identity
from tandem.session.tensor_shape import TensorShape
from tandem.session.unknown import show_shape


def fixed(name: str, owner: str) -> AttributeError:
    return AttributeError(
        f"{name!r} of {owner} cannot be changed: what was built into a graph stays as it is\n"
        "  fix: call operators to build more, or feed a tensor to give it another value in a run"
    )


def sized(shape: tuple, name: str):
    """x.size for a shape: the number of elements, which gives the shape when it is called."""
    total = product(shape)
    made = Size(total) if isinstance(total, int) else _UnknownSize(total, name)
    made.shape = shape
    return made


class _UnknownSize:
    __call__ = Size.__call__

    def __init__(self, total: Sym, name: str):
        self.total, self.name = total, name

    def __int__(self) -> int:
        raise UnsupportedError(
            "size",
            f"how many elements {self.name!r} has is unknown and cannot become a Python number",
            fix="use x.numel(), which may be passed on as a size",
        )

    __index__ = __float__ = __int__

    def __repr__(self):
        return str(self.total)


class SymbolicTensor(Value):
    """A tensor that a run of its graph computes. Has all operators and methods of Tensor."""

    __slots__ = ()

    def __setattr__(self, name: str, value):
        raise fixed(name, f"tensor {self.name!r}")

    def __delattr__(self, name: str):
        raise fixed(name, f"tensor {self.name!r}")

    @property
    def shape(self):
        """Sizes. An unknown one is a symbol, which may be computed with and given to operators as a size."""
        return tuple(
            d if isinstance(d, int) else self.node.graph.size_symbol(self, axis)
            for axis, d in enumerate(self.type.shape)
        )

    @property
    def graph(self):
        return self.node.graph

    @property
    def name(self) -> str:
        return self.node.op.result_name(self.node.name, self.index)

    @property
    def op(self):
        return self.node

    def __len__(self) -> int:
        if not self.type.shape:
            raise TypeError("len() of a tensor without axes")
        if not isinstance(self.type.shape[0], int):
            raise UnsupportedError(
                "len",
                f"the size of axis 0 of {self.name!r} is unknown and cannot become a Python number",
                fix="use x.shape[0]",
            )
        return self.type.shape[0]

    @property
    def size(self):
        """How many elements there are; x.size() is the shape, x.size(0) the size of an axis, as of Tensor."""
        return sized(self.shape, self.name)

    def numel(self):
        """How many elements there are: a number, or a symbol where a size is unknown."""
        return product(self.shape)

    nelement = numel

    @property
    def device(self):
        """Where it must be computed, by the scope of td.device that it was built in; None: where its operands are."""
        return self.node.device

    def to(self, *args, dtype=None, device=None, non_blocking: bool = False, copy: bool = False, memory_format=None):
        """This tensor with another dtype, in another memory format, or computed on another device, as of Tensor."""
        for a in args:
            if isinstance(a, (SymbolicTensor, _runtime.Tensor)):
                dtype, device = a.dtype, a.device
            elif isinstance(a, dtypes.DType) or a in (float, int, bool, complex):
                dtype = a
            elif isinstance(a, MemoryFormat):
                memory_format = a
            elif isinstance(a, str) and dtypes.is_name(a):
                dtype = a
            elif not isinstance(a, bool):
                device = a
        result = self
        with contextlib.nullcontext() if device is None else self.graph.device(device):
            if dtype is not None and dtypes.as_dtype(dtype) is not self.dtype:
                result = F.converted(result, dtypes.as_dtype(dtype))
            if memory_format is not None:
                result = F.contiguous(result, memory_format)
            if result is self and (copy or (device is not None and as_device(device) != self.device)):
                result = self.graph.add_node(Identity(), (self,), (self.type,)).outputs[0]
        return result

    def get_shape(self) -> TensorShape:
        """The shape, with None for sizes that are not known; `as_list()` gives it as a list."""
        return TensorShape(show_shape(self.type.shape))

    def eval(self, feed_dict=None, session=None):
        """The value, by a run of the session (the innermost one, unless given)."""
        return (session or current_session()).run(self, feed_dict)

    def recorder(self, name: str):
        return self.node.graph._recorder

    def detach(self) -> SymbolicTensor:
        """The same values, through which no gradients pass."""
        return self.graph.add_node(Detach(), (self,), (self.type,)).outputs[0]

    def _no_value(self, *args, **kwargs):
        raise UnsupportedError(
            None,
            f"{self!r} has no value until a session runs it",
            fix="use session.run(x), or td.where and the like inside the graph",
        )

    item = tolist = numpy = __bool__ = __int__ = __float__ = __array__ = _no_value

    def __setitem__(self, key, value):
        raise UnsupportedError(
            None,
            f"{self!r} cannot be changed by assigning to its items",
            fix="make a new tensor with td.where or td.concat; rows of a variable change when "
            "tandem.session.scatter_update(variable, indices, rows) is run",
        )

    def __iter__(self):
        size = self.shape[0] if self.ndim else None
        if not isinstance(size, int):
            raise UnsupportedError(None, f"{self!r} cannot be iterated over: the size of its first axis is not known")
        return (self[i] for i in range(size))

    def __repr__(self):
        return f"<symbolic tensor {self.name!r}, shape {show_shape(self.type.shape)}, {self.dtype}>"


class StepNode(Node):
    """A node of a deferred graph; fetching it runs it."""

    __slots__ = ("beside", "graph", "name", "wired")

    def __init__(self, graph, op: Op, inputs, types, name: str, control: tuple, device):
        super().__init__(op, tuple(inputs), (), user_source(), len(graph._nodes), control, device)
        revise(self, "outputs", tuple([SymbolicTensor(self, i, t) for i, t in enumerate(types)]))
        revise(self, "graph", graph)
        revise(self, "name", name)
        revise(self, "wired", tuple(graph._wired))  # branches and loops that it was built in
        revise(
            self, "beside", None
        )  # the node that it runs where it does, if a scope says so and that is bound to no device

    def __setattr__(self, name: str, value):
        raise fixed(name, f"operation {self.name!r}")

    def __delattr__(self, name: str):
        raise fixed(name, f"operation {self.name!r}")

    def run(self, feed_dict=None, session=None):
        (session or current_session()).run(self, feed_dict)

    def __repr__(self):
        return f"<operation {self.name!r} ({self.op.name})>"


def as_node(x) -> StepNode:
    if isinstance(x, SymbolicTensor):
        return x.node
    if isinstance(x, StepNode):
        return x
    raise DTypeError(None, f"a {type(x).__name__} is neither an operation nor a tensor of a graph")
