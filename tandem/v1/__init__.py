"""The classic names for deferred programs: placeholders, variables, sessions, and operators that build the default graph.

    from tandem.v1 import *

Programs written for the first version of graph-and-session libraries run as they stand but for the module name. Everything here is
a thin layer over `tandem.session` and the operators of `tandem`; results of Session.run are NumPy arrays.
"""

import builtins as _builtins
import types as _types

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
    colocate_with,
    control_dependencies,
    device,
    name_scope,
    reset_default_graph,
    set_random_seed,
)
from tandem.session import default_graph as get_default_graph
from tandem.session import graph_ops as control_flow_ops
from tandem.session.tensor_shape import Dimension, TensorShape
from tandem.v1 import errors, nn, train
from tandem.v1.arithmetic import *  # noqa: F403
from tandem.v1.arrays import *  # noqa: F403
from tandem.v1.building import *  # noqa: F403
from tandem.v1.client import ConfigProto, GPUOptions, InteractiveSession, RunOptions, Session
from tandem.v1.clip import clip_by_global_norm, clip_by_norm, clip_by_value, global_norm
from tandem.v1.constants import constant, convert_to_tensor
from tandem.v1.control_flow import cond, map_fn, scan, while_loop
from tandem.v1.draws import random_normal, random_uniform, truncated_normal
from tandem.v1.initializers import *  # noqa: F403
from tandem.v1.left_out import refuse as _refuse
from tandem.v1.queues import FIFOQueue, PaddingFIFOQueue, PriorityQueue, RandomShuffleQueue
from tandem.v1.shapes import rank, shape, size
from tandem.v1.variables import (
    AUTO_REUSE,
    GraphKeys,
    Variable,
    VariableScope,
    add_to_collection,
    get_collection,
    get_variable,
    get_variable_scope,
    global_variables,
    global_variables_initializer,
    local_variables,
    local_variables_initializer,
    trainable_variables,
    variable_scope,
    variables_initializer,
)

initialize_all_variables = global_variables_initializer
initialize_variables = variables_initializer
all_variables = global_variables

_MODULES = ("control_flow_ops", "errors", "nn", "train")
# `import *` leaves Python's own functions alone: range, abs, tuple, ... are there as v1.range and so on.
__all__ = [
    name
    for name, value in globals().items()
    if not name.startswith("_")
    and name not in dir(_builtins)
    and (name in _MODULES or not isinstance(value, _types.ModuleType))
]


def __getattr__(name):
    raise _refuse(__name__, name)
