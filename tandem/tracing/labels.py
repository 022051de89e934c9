"""What the calls and inputs of a program are called by who wrote it: phases, modules, parameters, arguments. Pages show these.

Note [Labels]
They are made when a program is compiled, for later nobody knows: modules have returned, arguments are gone. A call of
backward belongs to the module of the call that it differentiates, which is the latest of that operator that shares an operand
with it, or else the latest that has no backward yet: backward goes through calls from the last to the first. A call of an
optimiser belongs to the module that has the parameter.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import NamedTuple

from tandem import _runtime
from tandem.errors import module_calls
from tandem.tracing.describe import LEAF, NUMBER, RESULT, CallSpec, Captured

_BACKWARD = "_backward"


class Labels(NamedTuple):
    calls: list[tuple[str, ...]]  # the scopes around each call, outer ones first: ("forward", "GPT", "h", "0", "attn")
    inputs: list[str]  # the name of each input of the graph, "" where it has none
    name: str = ""  # of the compiled function


def labels_of(captured: Captured) -> Labels:
    inner, outer = module_calls.modules_of(captured.first, len(captured.calls))
    roots = list({id(m): m for m in outer if m is not None}.values())
    calls = captured.calls
    paths = _backward_paths(calls, _module_paths(inner, outer, roots))
    phases = _phases(calls)
    inputs = _inputs(captured, roots)
    _update_paths(captured, phases, paths, inputs, roots)
    scopes = [(phase, *path) if phase else path for phase, path in zip(phases, paths, strict=True)]
    return Labels(scopes, inputs, captured.report.name if captured.report is not None else "")


def state_of(captured: Captured) -> set[int]:
    """The leaves that are parameters or buffers of a module that was called."""
    _, outer = module_calls.modules_of(captured.first, len(captured.calls))
    known = _parameters({id(m): m for m in outer if m is not None}.values())
    return {i for i, address in enumerate(captured.addresses) if address in known}


def _module_paths(inner: list, outer: list, roots: list) -> list[tuple[str, ...]]:
    names = {id(root): {id(m): name for name, m in root.named_modules()} for root in roots}
    made = []
    for module, root in zip(inner, outer, strict=True):
        if module is None:
            made.append(())
            continue
        name = names[id(root)].get(id(module), module._get_name() if module is not root else "")
        made.append((root._get_name(), *(name.split(".") if name else ())))
    return made


def _phases(calls: list[CallSpec]) -> list[str]:
    """ "forward", "backward" and "update", where some call is a gradient's."""
    backward = [i for i, call in enumerate(calls) if _is_backward(call)]
    if not backward:
        return [""] * len(calls)
    first, last = backward[0], backward[-1]
    return ["forward" if i < first else "backward" if i <= last else "update" for i in range(len(calls))]


def _is_backward(call: CallSpec) -> bool:
    return call.plan.name.endswith(_BACKWARD)


def _operands(call: CallSpec, number: int) -> set[tuple]:
    """What a call reads and makes, by which others that use the same are known."""
    read = {(o.kind, o.index, o.output) for o in call.operands if o.kind in (LEAF, RESULT)}
    return read | {(RESULT, number, 0)}


def _backward_paths(calls: list[CallSpec], paths: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The paths with those of gradients. A call between gradients, which adds some up, goes with the one before it."""
    forward: dict[str, list[int]] = {}
    made, last = list(paths), ()
    began = False
    for number, call in enumerate(calls):
        name = call.plan.name
        if _is_backward(call):
            began = True
            own = _operands(call, number)
            waiting = forward.get(name.removesuffix(_BACKWARD), [])
            found = next(
                (i for i in reversed(waiting) if own & _operands(calls[i], i)), waiting[-1] if waiting else None
            )
            if found is not None:
                waiting.remove(found)
                last = paths[found]
            made[number] = last
        elif not began:
            forward.setdefault(name, []).append(number)
        elif not made[number]:
            made[number] = last
    return made if began else paths


def _update_paths(captured: Captured, phases: list[str], paths: list, inputs: list[str], roots: list) -> None:
    """Calls of optimisers go to the modules of the parameters that they read first."""
    root = (roots[0]._get_name(),) if len(roots) == 1 else ()
    for number, call in enumerate(captured.calls):
        if phases[number] != "update":
            continue
        name = next((inputs[o.index] for o in call.operands if o.kind == LEAF), "")
        paths[number] = (*root, *name.split(".")[:-1]) if name else ()


# -- inputs


def _inputs(captured: Captured, roots: list) -> list[str]:
    """Names of leaves, numbers and ints: by memory, or else by the operator that reads them first."""
    known = {**_parameters(roots), **_arguments()}
    leaves = [known.get(address, "") for address in captured.addresses] or [""] * len(captured.leaves)
    numbers = [""] * len(captured.numbers)
    for call in captured.calls:
        _name_operands(call, leaves, numbers)
    return [*leaves, *numbers, *[""] * len(captured.ints)]


def _parameters(roots) -> dict[int, str]:
    made = {}
    for root in roots:
        prefix = f"{root._get_name()}." if len(roots) > 1 else ""
        for name, tensor in [*root.named_parameters(), *root.named_buffers()]:
            if isinstance(tensor, _runtime.Tensor) and not _runtime.parts_of(tensor):
                made[_address(tensor)] = prefix + name
    return made


_VARARGS, _VARKEYWORDS = 0x04, 0x08  # flags of code objects


def _bound(fn, args: tuple, kwargs: dict) -> dict:
    """Arguments by the names of their parameters."""
    code = getattr(fn, "__code__", None)
    plain = code is not None and type(fn) is FunctionType and not fn.__dict__ and len(args) <= code.co_argcount
    if plain and not code.co_flags & (_VARARGS | _VARKEYWORDS):
        return dict(zip(code.co_varnames, args)) | kwargs
    import inspect  # takes as long to import as a small program to compile

    return inspect.signature(fn).bind_partial(*args, **kwargs).arguments


def _arguments() -> dict[int, str]:
    """The tensors that the compiled function was called with, by its parameters' names."""
    compiled = sys.modules["tandem.compiling.compiled"].Compiled
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not compiled.__call__.__code__:
        frame = frame.f_back
    if frame is None:
        return {}
    own = frame.f_locals
    try:
        bound = _bound(own["self"]._fn, own["args"], own["kwargs"])
    except (TypeError, ValueError):  # not known, or arguments that the function refuses
        bound = {f"argument {i}": value for i, value in enumerate(own["args"])}
    made: dict[int, str] = {}
    for name, value in bound.items():
        _collect(name, value, made)
    return made


def _collect(name: str, value, made: dict[int, str], depth: int = 0):
    if isinstance(value, _runtime.Tensor):
        made[_address(value)] = name
    elif depth < 3 and isinstance(value, dict):
        for key, item in value.items():
            _collect(f"{name}[{key!r}]", item, made, depth + 1)
    elif depth < 3 and isinstance(value, (list, tuple)) and len(value) < 1000:
        for i, item in enumerate(value):
            _collect(f"{name}[{i}]", item, made, depth + 1)


def _address(tensor) -> int:
    try:
        return tensor.data_ptr()
    except Exception:  # memory that is not there, or in parts: a name less
        return -1


def _name_operands(call: CallSpec, leaves: list[str], numbers: list[str]):
    """Names for what has none: "weight.exp_avg" of an optimiser's state, "dropout.p" of a number."""
    owner = ""
    for argument, _, position in call.plan.arguments:
        operand = call.operands[position]
        if operand.kind == LEAF:
            if not leaves[operand.index]:
                leaves[operand.index] = f"{owner or call.plan.name}.{argument}"
            owner = owner or leaves[operand.index]
        elif operand.kind == NUMBER and not numbers[operand.index]:
            numbers[operand.index] = f"{call.plan.name}.{argument}"
