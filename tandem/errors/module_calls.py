"""Which modules the calls of a compiled function were made in, so that an error of its program names them as eager code does.

A program runs when its modules have returned; the runtime tells which of the captured calls failed (`error._call`). What a device
finds comes later still: the place of such a call is kept with it (Note [Modules of late errors] in src/places.h). A place is
(path, text) of a module, as errors show it, or weak references to the modules that run, inner ones first; () where there is none.
"""

from __future__ import annotations

import sys
import weakref
from typing import NamedTuple

bases: list = []  # nn.Module
codes: list = []  # of functions that call modules, `self` (tandem/nn/module.py)
module_ranges = list  # _runtime.module_ranges, once there is one


class ModuleRange(NamedTuple):
    """A module that a compiled function has called, and the operators that were called in it."""

    first: int
    behind: int  # -1 while it runs
    module: object


def _ranges() -> list[ModuleRange]:
    """Of the compiled function that runs now, outer ones first."""
    return [ModuleRange(*found) for found in module_ranges()]


def note(error: BaseException, module, first: int = 0):
    """Has the error name modules that returned before it was found, and the one around, if the call that failed was made in it."""
    if getattr(error, "_placed", False):
        return
    call = getattr(error, "_call", None)
    if call is None:
        if module is not None:
            _note_path(module, error)
        return
    if not hasattr(error, "_modules_named"):
        error._modules_named = True
        for ended in reversed(_ranges()):  # inner ones first; those that still run hear of it themselves
            if ended.first <= call < ended.behind:
                _note_path(ended.module, error)
    if module is not None and call >= first:
        _note_path(module, error)


# Errors say in which module they arose: ours in their text, others by a note. The innermost module starts the path; each one around
# it makes it longer.


def _note_path(module, error: BaseException):
    """Has the error name this module, as the one around those that it names."""
    inner, last, path, note = getattr(error, "_tandem_module", (module, module, "", None))
    if last is not module:
        # It may sit below containers that are never called, so that its path is looked up.
        name = next((n for n, m in module.named_modules() if m is last), last._get_name())
        path = f"{name}.{path}" if path else name
    text = repr(inner)
    if "\n" in text:
        text = inner._get_name()
    whole = f"{module._get_name()}.{path}" if path else None
    made = f"  in {whole}: {text}" if whole else f"  in {text}"
    if hasattr(error, "place"):  # one of ours
        error.place(whole, text)
    else:
        notes = getattr(error, "__notes__", ())
        if note in notes:
            notes[notes.index(note)] = made
        else:
            error.add_note(made)
    error._tandem_module = (inner, module, path, made)


# -- errors that show late


def _running():
    """Modules that run, inner ones first: of calls of Module.__call__, or of what the runtime called in its place."""
    frame = sys._getframe(1)
    while frame is not None:
        code, outer = frame.f_code, frame.f_back
        if code in codes:
            yield frame.f_locals["self"]
        elif code.co_argcount and (outer is None or outer.f_code not in codes):
            one = frame.f_locals.get(code.co_varnames[0])
            if isinstance(one, tuple(bases)) and getattr(type(one).forward, "__code__", None) is code:
                yield one
        frame = outer


def here() -> tuple:
    """The place of what runs now."""
    return tuple(map(weakref.ref, _running()))


def modules_of(first: int, count: int) -> tuple[list, list]:
    """The innermost and the outermost module around each of `count` calls of the compiled function that runs, from this one on."""
    total = first + count
    inner, outer = [None] * count, [None] * count
    for called in _ranges():
        behind = total if called.behind < 0 else min(called.behind, total)
        for number in range(max(called.first - first, 0), behind - first):
            inner[number] = called.module
            outer[number] = outer[number] or called.module
    return inner, outer


def places(first: int, count: int) -> list[tuple]:
    """The place of each of `count` calls of the compiled function that runs, from this one on."""
    inner, outer = modules_of(first, count)
    names: dict[int, dict[int, str]] = {}
    texts: dict[tuple[int, int], tuple] = {}
    for module, root in zip(inner, outer, strict=True):
        if module is None or (id(module), id(root)) in texts:
            continue
        known = names.setdefault(id(root), {})
        if not known:
            known.update((id(m), name) for name, m in root.named_modules())
        path = None if module is root else f"{root._get_name()}.{known.get(id(module)) or module._get_name()}"
        text = repr(module)
        texts[id(module), id(root)] = path, module._get_name() if "\n" in text else text
    return [() if m is None else texts[id(m), id(r)] for m, r in zip(inner, outer, strict=True)]


def place(error: BaseException, where: tuple):
    """Has an error that shows late name its own place, and no module that only happens to run now."""
    error._placed = True
    if where and isinstance(where[-1], str):
        error.place(*where)
        return
    for module in (reference() for reference in where):
        if module is not None:
            _note_path(module, error)
