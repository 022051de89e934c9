"""The classic names for deferred programs: placeholders, variables, sessions, and operators that build the default graph.

    from tandem.v1 import *

Programs written for the first version of graph-and-session libraries run as they stand but for the module name. Everything here is
a thin layer over `tandem.session` and the operators of `tandem`; results of Session.run are NumPy arrays.
"""

import builtins as _builtins

import tandem as _td
from tandem import session as _session
from tandem.dtypes import (
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)  # fmt: skip
from tandem.dtypes import bool_ as bool
from tandem.session import (
    Graph,
    Print,
    Variable,
    control_dependencies,
    device,
    global_variables,
    group,
    identity,
    name_scope,
    no_op,
    placeholder,
    py_func,
    reset_default_graph,
    set_random_seed,
    trainable_variables,
    variables_initializer,
)  # fmt: skip
from tandem.session import default_graph as get_default_graph
from tandem.session import graph_ops as control_flow_ops
from tandem.session.build import tuple_of as _tuple_of
from tandem.v1 import errors, nn, train
from tandem.v1.client import InteractiveSession, RunOptions, Session
from tandem.v1.constants import constant, convert_to_tensor
from tandem.v1.control_flow import cond, while_loop
from tandem.v1.gradients import gradients
from tandem.v1.queues import FIFOQueue, PaddingFIFOQueue, PriorityQueue, RandomShuffleQueue
from tandem.v1.wrap import in_graph as _in_graph
from tandem.v1.wrap import operand as _operand

for _name in ("assign", "assign_add", "assign_sub", "scatter_update", "scatter_add", "scatter_sub", "scatter_mul", "scatter_div",
              "scatter_max", "scatter_min"):  # fmt: skip
    globals()[_name] = _in_graph(getattr(_session, _name))
tuple = _in_graph(_tuple_of)


def global_variables_initializer(name="init"):
    """An operation that gives every variable of the graph its initial value."""
    return variables_initializer(global_variables(), name)


initialize_all_variables = global_variables_initializer
initialize_variables = variables_initializer
all_variables = global_variables


# -- operators under their classic names: (ours, {classic keyword: our keyword})

_REDUCE = {"reduction_indices": "axis", "keep_dims": "keepdims"}
_NAMES = {
    "abs": "abs", "acos": "acos", "add": "add", "asin": "asin", "atan": "atan", "ceil": "ceil", "cos": "cos", "cosh": "cosh",
    "divide": "divide", "equal": "equal", "erf": "erf", "exp": "exp", "expm1": "expm1", "floor": "floor",
    "greater": "greater", "greater_equal": "greater_equal", "less": "less", "less_equal": "less_equal", "log": "log",
    "log1p": "log1p", "logical_and": "logical_and", "logical_not": "logical_not", "logical_or": "logical_or",
    "maximum": "maximum", "minimum": "minimum", "multiply": "multiply", "mul": "multiply", "negative": "negative",
    "neg": "negative",
    "not_equal": "not_equal", "pow": "power", "reciprocal": "reciprocal", "round": "round", "rsqrt": "rsqrt", "sigmoid": "sigmoid",
    "sign": "sign", "sin": "sin", "sinh": "sinh", "sqrt": "sqrt", "square": "square", "sub": "subtract",
    "subtract": "subtract", "tan": "tan", "tanh": "tanh", "where": "where", "reshape": "reshape", "tile": "tile", "stack": "stack",
    "ones_like": "ones_like", "zeros_like": "zeros_like", "cumsum": "cumsum", "einsum": "einsum",
}  # fmt: skip
for _name, _ours in _NAMES.items():
    if hasattr(_td, _ours):
        globals()[_name] = _in_graph(getattr(_td, _ours))
for _name, _ours in {"sum": "sum", "mean": "mean", "max": "max", "min": "min", "prod": "prod", "any": "any", "all": "all",
                     "logsumexp": "logsumexp"}.items():  # fmt: skip
    globals()[f"reduce_{_name}"] = _in_graph(getattr(_td, _ours), _REDUCE)


@_in_graph
def div(x, y):
    """Rounded down for integers, exact for floating numbers."""
    x, y = _operand(x), _operand(y)
    integers = all(type(v) is int or getattr(v, "dtype", _td.float32).kind in ("int", "uint") for v in (x, y))
    return _td.floor_divide(x, y) if integers else _td.divide(x, y)


@_in_graph
def matmul(a, b, transpose_a=False, transpose_b=False):
    """Matrix product, of the transposed matrices if asked."""
    return _td.matmul(a.mT if transpose_a else a, b.mT if transpose_b else b)


@_in_graph
def cast(x, dtype):
    return _td.cast(x, dtype) if hasattr(_td, "cast") else x.astype(dtype)


@_in_graph
def argmax(x, axis=0, dimension=None):
    return _td.argmax(x, axis if dimension is None else dimension)


@_in_graph
def argmin(x, axis=0, dimension=None):
    return _td.argmin(x, axis if dimension is None else dimension)


@_in_graph
def transpose(x, perm=None):
    return _td.permute(x, perm if perm is not None else [*_builtins.range(x.ndim)][::-1])


@_in_graph
def concat(values, axis=0):
    """Joined along an axis; the oldest programs give the axis first."""
    if isinstance(values, int):
        values, axis = axis, values
    return _td.concat(list(values), axis)


@_in_graph
def expand_dims(x, axis=None, dim=None):
    return _td.unsqueeze(x, axis if dim is None else dim)


@_in_graph
def squeeze(x, axis=None):
    return _td.squeeze(x) if axis is None else _td.squeeze(x, axis)


@_in_graph
def gather(params, indices, axis=0):
    """Slices of params at these indices, along an axis."""
    return params[(slice(None),) * axis + (indices,)]


@_in_graph
def one_hot(indices, depth, dtype=float32):
    """1 where the index is, 0 elsewhere, along a new last axis."""
    return _td.equal(_td.unsqueeze(indices, -1), _td.arange(depth)).astype(dtype)


@_in_graph
def stop_gradient(x):
    """x, through which no gradients pass."""
    return x.detach()


@_in_graph
def add_n(inputs):
    total, *rest = inputs
    for x in rest:
        total = total + x
    return total


@_in_graph
def clip_by_value(x, low, high):
    return _td.clip(x, low, high)


@_in_graph
def zeros(shape, dtype=float32):
    return _td.zeros(*shape, dtype=dtype)


@_in_graph
def ones(shape, dtype=float32):
    return _td.ones(*shape, dtype=dtype)


@_in_graph
def fill(shape, value):
    return _td.full(list(shape), value)


@_in_graph
def range(start, limit=None, delta=1, dtype=None):
    return _td.arange(start, limit, delta, dtype=dtype) if limit is not None else _td.arange(start, dtype=dtype)


def _generator(seed):
    return None if seed is None else _td.Generator(seed)


@_in_graph
def random_uniform(shape, minval=0.0, maxval=1.0, dtype=float32, seed=None):
    """Uniform in [minval, maxval), drawn anew at each run."""
    unit = _td.rand(*shape, dtype=dtype, generator=_generator(seed))
    return unit if (minval, maxval) == (0, 1) else unit * (maxval - minval) + minval


@_in_graph
def random_normal(shape, mean=0.0, stddev=1.0, dtype=float32, seed=None):
    """Normal, drawn anew at each run."""
    return _td.randn(*shape, dtype=dtype, generator=_generator(seed)) * stddev + mean


@_in_graph
def truncated_normal(shape, mean=0.0, stddev=1.0, dtype=float32, seed=None):
    """Normal within two standard deviations."""
    # By inversion: uniform between the values of the distribution function at -2 and 2.
    unit = _td.rand(*shape, dtype=dtype, generator=_generator(seed))
    return _td.erfinv((unit * 2 - 1) * 0.9544997) * (2**0.5 * stddev) + mean


# `import *` leaves Python's own functions alone: range, abs, tuple, ... are there as v1.range and so on.
__all__ = [name for name in globals() if not name.startswith("_") and name not in dir(_builtins)]
