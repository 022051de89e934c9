"""Variables by name, scopes that share them, and collections."""

from __future__ import annotations

import contextlib
import re

from tandem import dtypes
from tandem import session as _session
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.session.build import graph_of
from tandem.session.graph import Graph, default_graph
from tandem.v1.initializers import glorot_uniform_initializer, zeros_initializer
from tandem.v1.wrap import int32_if_whole

AUTO_REUSE = "AUTO_REUSE"  # take the variable if there is one, make it if not


class GraphKeys:
    """Names of collections."""

    GLOBAL_VARIABLES = "variables"
    LOCAL_VARIABLES = "local_variables"
    TRAINABLE_VARIABLES = "trainable_variables"
    REGULARIZATION_LOSSES = "regularization_losses"
    LOSSES = "losses"
    UPDATE_OPS = "update_ops"
    GLOBAL_STEP = "global_step"


class _Kept:
    """What these names keep of a graph."""

    def __init__(self):
        self.collections: dict[str, list] = {}
        self.variables: dict[str, Variable] = {}  # of get_variable
        self.scope = VariableScope("", False, None, None)
        self.scopes_opened: dict[str, int] = {}


def _kept(graph: Graph | None = None) -> _Kept:
    graph = default_graph() if graph is None else graph
    while graph.is_body:
        graph = graph.outer
    return graph.__dict__.setdefault("_classic", _Kept())


class Variable(_session.Variable):
    """A tensor that a session keeps from run to run. Python's integers are int32.

    collections: where get_collection finds it; a local variable is no global one. validate_shape, caching_device and
    expected_shape are accepted without effect: shapes of variables are always known and checked.
    """

    __slots__ = ()

    def __init__(self, initial_value=None, trainable=True, collections=None, validate_shape=True, caching_device=None, name=None,
                 variable_def=None, dtype=None, expected_shape=None):  # fmt: skip
        if isinstance(trainable, str):  # Variable(initial, name)
            name, trainable = trainable, True
        local = GraphKeys.LOCAL_VARIABLES in (collections or ())
        dtype = dtype or int32_if_whole(initial_value)
        super().__init__(initial_value, trainable and not local, name or "Variable", dtype)
        for key in collections or ():
            if key not in (GraphKeys.GLOBAL_VARIABLES, GraphKeys.TRAINABLE_VARIABLES):
                add_to_collection(key, self)


def global_variables(scope=None) -> list:
    """All variables but local ones; with a scope, those whose names begin with it."""
    return get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


def local_variables(scope=None) -> list:
    return get_collection(GraphKeys.LOCAL_VARIABLES, scope)


def trainable_variables(scope=None) -> list:
    return get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


def variables_initializer(var_list, name="init"):
    """An operation that gives the variables their initial values."""
    return _session.variables_initializer(var_list, name)


def global_variables_initializer(name="init"):
    """An operation that gives every global variable its initial value."""
    return variables_initializer(global_variables(), name)


def local_variables_initializer(name="init_local"):
    """An operation that gives every local variable its initial value."""
    return variables_initializer(local_variables(), name)


# -- collections


def add_to_collection(name: str, value):
    """Files a value under a name, for get_collection."""
    graph = graph_of(value)
    if name in (GraphKeys.GLOBAL_VARIABLES, GraphKeys.TRAINABLE_VARIABLES):
        raise ValueRangeError("add_to_collection", f"{name!r} holds variables as they were built, and nothing else")
    _kept(graph).collections.setdefault(name, []).append(value)


def get_collection(key: str, scope: str | None = None) -> list:
    """What is filed under a name; with a scope, what has a name that begins with this pattern."""
    graph = default_graph()
    while graph.is_body:
        graph = graph.outer
    filed = _kept(graph).collections
    if key in (GraphKeys.GLOBAL_VARIABLES, GraphKeys.TRAINABLE_VARIABLES):
        local = {id(v) for v in filed.get(GraphKeys.LOCAL_VARIABLES, ())}
        found = [v for v in graph.variables if id(v) not in local]
        if key == GraphKeys.TRAINABLE_VARIABLES:
            found = [v for v in found if v.trainable]
    else:
        found = list(filed.get(key, ()))
    return found if scope is None else [v for v in found if re.match(scope, getattr(v, "name", None) or "")]


# -- variables by name


class VariableScope:
    """Where get_variable looks: the beginning of names, and whether variables are there already."""

    def __init__(self, name: str, reuse, initializer, regularizer):
        self.name = name
        self.reuse = reuse
        self.initializer = initializer
        self.regularizer = regularizer
        self.original_name_scope = name + "/" if name else ""

    def reuse_variables(self):
        """From here on, variables of this scope are those that are there."""
        self.reuse = True

    def global_variables(self) -> list:
        return global_variables(f"{re.escape(self.name)}/" if self.name else None)

    def trainable_variables(self) -> list:
        return trainable_variables(f"{re.escape(self.name)}/" if self.name else None)


def get_variable_scope() -> VariableScope:
    return _kept().scope


@contextlib.contextmanager
def variable_scope(name_or_scope, default_name=None, values=None, initializer=None, regularizer=None, reuse=None):
    """Names of variables that get_variable makes inside begin with this, and so do names of operators.

    reuse: True takes variables that are there, AUTO_REUSE makes those that are not; None is what the scope around says.
    """
    graph = default_graph()
    kept = _kept(graph)
    around = kept.scope
    if name_or_scope is None:
        name_or_scope = _unused(kept, around, default_name)
        reuse = False if reuse is None else reuse
    if isinstance(name_or_scope, VariableScope):
        entered, full = name_or_scope, name_or_scope.name
        reuse = entered.reuse if reuse is None else reuse
    else:
        entered, full = around, "/".join(filter(None, [around.name, name_or_scope]))
    inside = VariableScope(
        full,
        reuse or around.reuse,
        initializer or entered.initializer,
        regularizer or entered.regularizer,
    )
    kept.scopes_opened[full] = kept.scopes_opened.get(full, 0) + 1
    opened = name_or_scope if isinstance(name_or_scope, str) else full.rpartition("/")[2]
    with graph.name_scope(opened) if opened else contextlib.nullcontext():
        kept.scope = inside
        try:
            yield inside
        finally:
            kept.scope = around


def _unused(kept: _Kept, around: VariableScope, name: str | None) -> str:
    if name is None:
        raise ValueRangeError("variable_scope", "there is neither a name nor a default_name", fix="give one of them")
    made, count = name, 0
    while "/".join(filter(None, [around.name, made])) in kept.scopes_opened:
        count += 1
        made = f"{name}_{count}"
    return made


def get_variable(name, shape=None, dtype=None, initializer=None, regularizer=None, trainable=True, collections=None,
                 caching_device=None, partitioner=None, validate_shape=True, use_resource=None):  # fmt: skip
    """The variable of this name in the scope, made if it is not there; whether it must be is the scope's `reuse`.

    initializer: a function of shape and dtype, or a value; unless given, that of the scope, or glorot_uniform_initializer, zeros
    for integers. regularizer: a function of the variable, whose result is filed under GraphKeys.REGULARIZATION_LOSSES.
    caching_device, partitioner, validate_shape and use_resource are accepted without effect.
    """
    kept = _kept()
    scope = kept.scope
    full = "/".join(filter(None, [scope.name, name]))
    found = kept.variables.get(full)
    if found is not None:
        return _reused(full, found, scope, shape, dtype)
    if scope.reuse is True:
        raise ValueRangeError(
            "get_variable",
            f"there is no variable {full!r}, and the scope reuses variables",
            fix="make it outside of reuse, or open the scope with reuse=tf.AUTO_REUSE",
        )
    initializer = initializer if initializer is not None else scope.initializer
    initial, dtype = _initial(full, initializer, shape, dtype)
    graph = default_graph()
    before, graph._scopes = graph._scopes, []  # the name is that of the variable scope
    try:
        made = Variable(initial, trainable, collections, name=full, dtype=dtype)
    finally:
        graph._scopes = before
    kept.variables[full] = made
    regularizer = regularizer or scope.regularizer
    if regularizer is not None:
        loss = regularizer(made)
        if loss is not None:
            add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)
    return made


def _reused(full: str, found: Variable, scope: VariableScope, shape, dtype) -> Variable:
    if not scope.reuse:
        raise ValueRangeError(
            "get_variable",
            f"there is a variable {full!r} already, built at {found.node.source}",
            fix="to share it, open the scope with reuse=True or reuse=tf.AUTO_REUSE",
        )
    if shape is not None and tuple(_listed(shape)) != tuple(found.shape):
        raise ShapeError(
            "get_variable", f"variable {full!r} is {tuple(found.shape)}, and is asked for as {tuple(_listed(shape))}"
        )
    if dtype is not None and dtypes.as_dtype(dtype) is not found.dtype:
        raise DTypeError(
            "get_variable", f"variable {full!r} is {found.dtype}, and is asked for as {dtypes.as_dtype(dtype)}"
        )
    return found


def _listed(shape) -> list:
    return [int(d) for d in (shape if isinstance(shape, (list, tuple)) else [shape])]


def _initial(full: str, initializer, shape, dtype):
    """What a variable begins with, and its dtype."""
    if initializer is not None and not callable(initializer):
        return initializer, dtype
    if shape is None:
        raise ShapeError(
            "get_variable",
            f"variable {full!r} has neither a shape nor an initial value",
            fix="pass shape=, or initializer=",
        )
    dtype = dtypes.float32 if dtype is None else dtypes.as_dtype(dtype)
    if initializer is None:
        initializer = glorot_uniform_initializer() if dtype.kind == "float" else zeros_initializer()
    elif isinstance(initializer, type):
        initializer = initializer()
    return initializer(_listed(shape), dtype=dtype), dtype
