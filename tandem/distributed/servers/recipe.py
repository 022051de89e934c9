"""Optimisers as names and numbers: what a server needs to make one like it, without any code being sent."""

from __future__ import annotations

import importlib
import inspect

from tandem import _runtime
from tandem.errors import UnsupportedError
from tandem.optim.optimizer import Optimizer

Tensor = _runtime.Tensor
_OWN = {"defaults", "state", "param_groups", "_counts", "_before", "_after"}


def describe(optimizer: Optimizer) -> dict:
    """An optimiser, as JSON: its class, its settings, and those of its groups."""
    kind = type(optimizer)
    _check_step(optimizer)
    made = {
        "module": kind.__module__, "name": kind.__qualname__, "defaults": settings_of(optimizer.defaults),
        "more": {k: v for k, v in vars(optimizer).items() if k not in _OWN and _is_plain(v)},
        "groups": [settings_of(g) for g in optimizer.param_groups],
    }  # fmt: skip
    if "<locals>" in kind.__qualname__:
        raise UnsupportedError(
            "ParameterServer", f"{kind.__qualname__} is defined inside of a function, so that servers cannot import it",
            fix="define it at the top of a module that servers can import",
        )  # fmt: skip
    return made


def _check_step(optimizer: Optimizer):
    """Servers have gradients, and no function that computes them again."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise UnsupportedError(
            "ParameterServer",
            f"{type(optimizer).__name__}.step needs a closure that computes the loss again, which servers cannot have",
            fix="use an optimiser that takes one step by the gradients that are there, such as td.optim.Adam",
        )  # fmt: skip


def settings_of(group: dict) -> dict:
    made = {}
    for name, value in group.items():
        if name in ("params", "param_names"):
            continue
        if isinstance(value, Tensor) and value.numel() == 1:
            value = value.item()
        if not _is_plain(value):
            raise UnsupportedError(
                "ParameterServer",
                f"{name}={value!r} of the optimiser cannot be sent to servers",
                fix="use plain numbers",
            )
        made[name] = value
    return made


def restore(recipe: dict, groups: list[list]) -> Optimizer:
    """An optimiser of these parameters. groups: those of each group of the recipe, of which some may be empty."""
    kind = getattr(importlib.import_module(recipe["module"]), recipe["name"], None)
    if not (isinstance(kind, type) and issubclass(kind, Optimizer)):
        raise UnsupportedError("ParameterServer", f"{recipe['module']}.{recipe['name']} is no optimiser")
    made = kind.__new__(kind)
    given = [
        {**settings, "params": params} for settings, params in zip(recipe["groups"], groups, strict=True) if params
    ]
    Optimizer.__init__(made, given, dict(recipe["defaults"]))
    vars(made).update(recipe["more"])
    return made


def is_elementwise(optimizer: Optimizer, group: dict) -> bool:
    """Whether every element is updated by itself, so that parts of a parameter may be on several servers."""
    try:
        rule, _ = optimizer.rule(group)
    except NotImplementedError:
        return False
    return rule.role.elementwise


def _is_plain(value) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))
