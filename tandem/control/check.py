"""Checks of what bodies give, with messages that name the variable."""

from __future__ import annotations

from tandem.control.body import as_tensor
from tandem.errors import DTypeError, ShapeError
from tandem.tree import Structure, flatten


def carried(name: str, what: str, result, structure: Structure, before: list, cast=None) -> list:
    """The leaves of a body's result that must fit what it got: same containers, shapes and dtypes.

    cast(number, like): makes a Python number of the dtype of what it replaces.
    """
    leaves, made = flatten(result)
    if made != structure:
        raise ShapeError(
            name,
            f"{what} were {structure!r} before the body and are {made!r} after it; the containers must be the same",
        )
    tensors = []
    for path, old, new in zip(structure.paths(), before, leaves, strict=True):
        if isinstance(new, (bool, int, float)):
            new = cast(new, old) if cast is not None else new
        tensors.append(new)
        compare(name, what + path if path else what, old, as_tensor(name, new))
    return tensors


def compare(name: str, what: str, old, new, vary: bool = False):
    if vary:
        if old.dtype is not new.dtype:
            raise DTypeError(name, f"{what} is {old.dtype} before an iteration and {new.dtype} after it")
        return
    if tuple(old.shape) != tuple(new.shape):
        raise ShapeError(
            name,
            f"{what} is {old.dtype} {tuple(old.shape)} before an iteration and {new.dtype} {tuple(new.shape)} after it; its "
            "shape must stay the same",
            fix="give it its final shape at the start" + (", or pass vary=True" if name == "while_loop" else ""),
        )
    if old.dtype is not new.dtype:
        raise DTypeError(
            name,
            f"{what} is {old.dtype} {tuple(old.shape)} before an iteration and {new.dtype} {tuple(new.shape)} after it; its "
            "dtype must stay the same",
            fix=f"convert it: x.astype({old.dtype}), or start with {new.dtype}",
        )


def branches(name: str, results: list) -> None:
    """Branches must give the same containers, shapes and dtypes. results: (what, leaves, structure) of each."""
    first, leaves, structure = results[0]
    for other, others, made in results[1:]:
        if made != structure:
            raise ShapeError(
                name, f"{first} gives {structure!r} and {other} gives {made!r}; the containers must be the same"
            )
        for path, a, b in zip(structure.paths(), leaves, others, strict=True):
            if tuple(a.shape) != tuple(b.shape) or a.dtype is not b.dtype:
                error = ShapeError if tuple(a.shape) != tuple(b.shape) else DTypeError
                raise error(
                    name,
                    f"result{path} is {a.dtype} {tuple(a.shape)} from {first} and {b.dtype} {tuple(b.shape)} from {other}; "
                    "all branches must give the same",
                )
