"""What graphs have besides operators, with the classic signatures: placeholders, assignments, printing, Python functions."""

import builtins as _builtins
from collections.abc import Sequence as _Sequence

from tandem import dtypes as _dtypes
from tandem import session as _session
from tandem.errors import ShapeError as _ShapeError
from tandem.errors import UnsupportedError as _UnsupportedError
from tandem.errors import ValueRangeError as _ValueRangeError
from tandem.graph.ir import Type as _Type
from tandem.graph.ir import revise as _revise
from tandem.session.build import as_tensor as _as_tensor
from tandem.session.build import graph_of as _graph_of
from tandem.session.build import tuple_of as _tuple_of
from tandem.session.graph import SymbolicTensor as _SymbolicTensor
from tandem.session.nodes import Identity as _Identity
from tandem.session.tensor_shape import TensorShape as _TensorShape
from tandem.session.unknown import show_shape as _show_shape
from tandem.v1.wrap import in_graph as _in_graph
from tandem.v1.wrap import named as _named


def placeholder(dtype, shape: _Sequence[int | None] | None = None, name=None):
    """A tensor that each run is given. None in `shape` is a size that may differ from run to run."""
    if shape is None:
        raise _ShapeError(
            "placeholder",
            "there is no shape: tensors whose number of axes is unknown are not supported",
            fix="give each axis, None where its size is open: [None, 10]; [] for a single number",
        )
    shape = shape if isinstance(shape, (list, _builtins.tuple)) else [shape]
    return _session.placeholder(dtype, _TensorShape(shape).as_list(), name or "placeholder")


@_in_graph
def placeholder_with_default(input, shape):
    """input, unless a run is given something else of this shape, in which None is any size."""
    graph = _graph_of(input)
    default = _as_tensor(graph, input)
    declared, known = _TensorShape(shape).as_list(), default.type.shape
    if len(declared) != len(known) or any(a is not None and a != b for a, b in zip(declared, known, strict=True)):
        raise _ShapeError(
            "placeholder_with_default",
            f"the default is {_show_shape(known)} and the shape {_builtins.tuple(declared)}; they must fit",
            fix="give None for sizes that may differ",
        )
    node = graph.add_node(_Identity(), (default,), (default.type,), "placeholder_with_default")
    axes = enumerate(zip(declared, known, strict=True))
    sizes = _builtins.tuple(graph.symbols.new_unknown(node.name, axis) if a is None else b for axis, (a, b) in axes)
    _revise(node, "outputs", (_SymbolicTensor(node, 0, _Type(default.dtype, sizes)),))
    return node.outputs[0]


@_in_graph
def assign(ref, value, validate_shape=True, use_locking=None):
    """Stores value in a variable when run; gives the new value. The shape of a variable never changes, so validate_shape=False
    is accepted where the shapes are the same."""
    value = _as_tensor(ref.graph, value, None if isinstance(value, _SymbolicTensor) else ref.dtype)
    if not validate_shape and _show_shape(value.type.shape) != _builtins.tuple(ref.shape):
        raise _UnsupportedError(
            "assign",
            f"the value is {_show_shape(value.type.shape)} and variable {ref.name!r} is {_show_shape(ref.type.shape)}; a variable "
            "keeps its shape",
            fix="make a variable of the shape that is needed",
        )
    return _session.assign(ref, value)


for _name in ("assign_add", "assign_sub", "scatter_update", "scatter_add", "scatter_sub", "scatter_mul", "scatter_div",
              "scatter_max", "scatter_min", "identity"):  # fmt: skip
    globals()[_name] = _in_graph(getattr(_session, _name))


@_in_graph
def tuple(tensors, control_inputs=None):
    """The tensors, once all of them are computed, and these operations done."""
    with _graph_of(*tensors).control_dependencies(control_inputs or []):
        return _tuple_of(tensors)


def group(*inputs, name=None):
    """One operation that runs all of these."""
    return _session.group(*inputs, name=name or "group")


def no_op(name=None):
    """An operation that does nothing."""
    return _session.no_op(name or "no_op")


def Print(input_, data, message=None, first_n=None, summarize=None, name=None):
    """input_, and as a side effect of computing it, a line with the values of `data` on standard error after the run."""
    return _session.Print(input_, data, message or "", first_n, summarize, name or "print")


def Assert(condition, data, summarize=None, name=None):
    """An operation that fails where the condition does not hold, with the values of `data`: run it, or make others depend on it.

    with tf.control_dependencies([tf.Assert(tf.reduce_all(x > 0), [x])]): ...
    """

    def check(holds, *values):
        if not holds.all():
            shown = ", ".join(str(v.ravel()[:summarize].tolist()) for v in values)
            raise _ValueRangeError("Assert", f"the condition does not hold; data: {shown}")
        return holds

    return _session.py_func(check, [condition, *data], _dtypes.bool_, None, name or "Assert")


def py_func(func, inp, Tout, stateful=True, name=None, shape=None):
    """Results of a Python function of NumPy arrays, called at each run that needs them. Gradients do not pass through it.

    shape: of each result; that of the first input unless given. stateful: any function may have state here.
    """
    if isinstance(stateful, (list, _builtins.tuple)):  # as td.py_func takes it
        shape = stateful
    return _session.py_func(func, inp, Tout, shape, name or "py_func")


def gradients(
    ys, xs, grad_ys=None, name=None, colocate_gradients_with_ops=False, gate_gradients=False, aggregation_method=None
):
    """Gradients of the sum of ys with respect to each of xs; None where ys do not depend on it.

    The last three arguments say how another library computes the same numbers, and are accepted without effect.
    """
    first = ys[0] if isinstance(ys, (list, _builtins.tuple)) else ys
    return _named(_graph_of(first), name, lambda: _session.gradients(ys, xs, grad_ys))


__all__ = [name for name in globals() if not name.startswith("_")]
