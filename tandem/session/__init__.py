"""Deferred programs: graphs built by hand from placeholders and variables, and the sessions that run them."""

from tandem.session import graph_ops
from tandem.session.build import (
    Print,
    Variable,
    assign,
    assign_add,
    assign_sub,
    colocate_with,
    control_dependencies,
    device,
    global_variables,
    global_variables_initializer,
    gradients,
    group,
    identity,
    name_scope,
    no_op,
    placeholder,
    py_func,
    set_random_seed,
    trainable_variables,
    variables_initializer,
)  # fmt: skip
from tandem.session.coordinator import Coordinator, QueueRunner, add_queue_runner, start_queue_runners
from tandem.session.current import current_session
from tandem.session.graph import Graph, SymbolicTensor, default_graph, reset_default_graph
from tandem.session.queues import FIFOQueue, PaddingFIFOQueue, PriorityQueue, RandomShuffleQueue
from tandem.session.saver import Saver
from tandem.session.session import Function, Session, function
from tandem.session.state import (
    scatter_add,
    scatter_div,
    scatter_max,
    scatter_min,
    scatter_mul,
    scatter_sub,
    scatter_update,
)  # fmt: skip

__all__ = [
    "Coordinator", "FIFOQueue", "Function", "Graph", "PaddingFIFOQueue", "Print", "PriorityQueue", "QueueRunner",
    "RandomShuffleQueue", "Saver", "Session", "SymbolicTensor", "Variable", "add_queue_runner", "assign", "assign_add",
    "assign_sub", "colocate_with",
    "control_dependencies", "current_session", "default_graph", "device", "function", "global_variables",
    "global_variables_initializer", "gradients", "graph_ops", "group", "identity", "name_scope", "no_op", "placeholder",
    "py_func", "reset_default_graph", "scatter_add", "scatter_div", "scatter_max", "scatter_min", "scatter_mul",
    "scatter_sub", "scatter_update", "set_random_seed", "start_queue_runners", "trainable_variables", "variables_initializer",
]  # fmt: skip
