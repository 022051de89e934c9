"""Updates of some rows of a variable: scatter_update, scatter_add and the like, for graphs.

A write has the session's variables for itself while it happens (Note [Runs] in program.py), so each of these is one step that no
other run interrupts or sees by half, with use_locking or without: the argument is accepted because programs pass it.
"""

from __future__ import annotations

import functools

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError, ShapeError
from tandem.ops.prepare import cast
from tandem.session.build import Variable, as_tensor, store
from tandem.session.graph import SymbolicTensor
from tandem.session.nodes import CHANGES, Store
from tandem.session.unknown import show_shape


def _change(reduce: str | None, old, rows, new):
    row = tuple(old.shape[1:])
    flat = F.reshape(rows, (-1,)) if rows.ndim != 1 else rows
    new = F.expand(new, (flat.shape[0], *row)) if new.ndim == 0 else F.reshape(new, (flat.shape[0], *row))
    flat = cast(flat, dtypes.int64)
    if reduce is None:
        return F.index_copy(old, 0, flat, cast(new, old.dtype))
    if reduce in ("add", "sub"):
        return F.index_add(old, 0, flat, cast(new if reduce == "add" else F.negative(new), old.dtype))
    if reduce == "div":
        return _divide(old, flat, cast(new, old.dtype))
    return F.index_reduce(old, 0, flat, cast(new, old.dtype), {"mul": "prod", "max": "amax", "min": "amin"}[reduce])


def _divide(old, rows, new):
    """old, with each row divided by the product of what is named for it, which is computed in a dtype that has room for it."""
    if old.dtype.is_complex:
        return F.divide(old, F.index_reduce(F.ones_like(old), 0, rows, new, "prod"))
    room = dtypes.float64 if old.dtype.is_inexact else dtypes.uint64 if old.dtype is dtypes.uint64 else dtypes.int64
    whole = cast(old, room)
    by = F.index_reduce(F.ones_like(whole), 0, rows, cast(new, room), "prod")
    return cast(F.divide(whole, by, rounding_mode=None if old.dtype.is_inexact else "trunc"), old.dtype)


REDUCES = {
    "scatter_update": None, "scatter_add": "add", "scatter_sub": "sub", "scatter_mul": "mul", "scatter_div": "div",
    "scatter_max": "max", "scatter_min": "min",
}  # fmt: skip
CHANGES.update({name: functools.partial(_change, reduce) for name, reduce in REDUCES.items()})


def _scatter(name: str, variable, indices, updates) -> SymbolicTensor:
    if not isinstance(variable, Variable):
        raise DTypeError(name, f"{variable!r} is no variable, so nothing can be assigned to it")
    graph = variable.graph
    indices = as_tensor(graph, indices)
    updates = as_tensor(graph, updates, None if isinstance(updates, SymbolicTensor) else variable.dtype)
    if indices.dtype.kind not in ("int", "uint"):
        raise DTypeError(name, f"indices are {indices.dtype}; they must be integers")
    if variable.ndim == 0:
        raise ShapeError(name, f"variable {variable.name!r} has no axes, so it has no rows")
    expected = (*show_shape(indices.type.shape), *variable.shape[1:])
    given = show_shape(updates.type.shape)
    whole = len(given) == len(expected) and all(
        a is None or b is None or a == b for a, b in zip(given, expected, strict=True)
    )
    if not whole and given != ():
        raise ShapeError(
            name,
            f"updates are {given}; for indices {show_shape(indices.type.shape)} of rows of variable {variable.name!r} "
            f"{tuple(variable.shape)} they must be {expected}, or one number",
        )

    return store(Store(name, variable), (indices, updates))


def scatter_update(variable, indices, updates, use_locking: bool = True, name=None) -> SymbolicTensor:
    """Stores updates[i] in row indices[i] of a variable; of rows named more than once, the last one counts. Gives the new value.

    >>> with td.Graph() as graph:
    ...     v = td.Variable(td.zeros(3))
    ...     init, update = td.global_variables_initializer(), td.session.scatter_update(v, [0, 2], [5.0, 6.0])
    >>> session = td.Session(graph)
    >>> session.run(init)
    >>> session.run(update)
    tensor([5., 0., 6.])
    """
    return _scatter("scatter_update", variable, indices, updates)


def scatter_add(variable, indices, updates, use_locking: bool = True, name=None) -> SymbolicTensor:
    """Adds updates[i] to row indices[i] of a variable; rows named more than once get all of them."""
    return _scatter("scatter_add", variable, indices, updates)


def scatter_sub(variable, indices, updates, use_locking: bool = True, name=None) -> SymbolicTensor:
    """Subtracts updates[i] from row indices[i] of a variable."""
    return _scatter("scatter_sub", variable, indices, updates)


def scatter_mul(variable, indices, updates, use_locking: bool = True, name=None) -> SymbolicTensor:
    """Multiplies row indices[i] of a variable by updates[i]."""
    return _scatter("scatter_mul", variable, indices, updates)


def scatter_div(variable, indices, updates, use_locking: bool = True, name=None) -> SymbolicTensor:
    """Divides row indices[i] of a variable by updates[i]. Integers are rounded towards zero."""
    return _scatter("scatter_div", variable, indices, updates)


def scatter_max(variable, indices, updates, use_locking: bool = True, name=None) -> SymbolicTensor:
    """The larger of row indices[i] of a variable and updates[i]."""
    return _scatter("scatter_max", variable, indices, updates)


def scatter_min(variable, indices, updates, use_locking: bool = True, name=None) -> SymbolicTensor:
    """The smaller of row indices[i] of a variable and updates[i]."""
    return _scatter("scatter_min", variable, indices, updates)
