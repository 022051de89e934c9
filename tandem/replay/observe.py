"""Which instructions of which functions a call runs: names of globals and attributes that it reads, modules that it looks into.

Python's own tracing tells of every instruction. That is slow, and happens at the first calls only.
"""

from __future__ import annotations

import dis
import gc
import itertools
import os
import sys
import types
from collections.abc import Iterator

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_COMPILERS = tuple(OURS + folder + os.sep for folder in ("codegen", "llvm", "machine", "passes", "program"))
_LIBRARY = (os.path.dirname(os.__file__) + os.sep, "<frozen ")
_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}
_ARITHMETIC = ("BINARY_OP", "COMPARE_OP", "UNARY_")


def is_ours(code: types.CodeType) -> bool:
    return code.co_filename.startswith(OURS)


def compiles(code: types.CodeType) -> bool:
    """Whether it is code of ours that makes programs and keeps them. What it knows decides how quickly, never on what."""
    return code.co_filename.startswith(_COMPILERS)


def is_setting(scope: dict, name: str) -> bool:
    """Whether a global is data: neither a function, nor a class, nor a module."""
    return name in scope and not callable(scope[name]) and not isinstance(scope[name], types.ModuleType)


def nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those of the functions that are made in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from nested(constant)


def _called_by_us(frame) -> bool:
    """Whether Python's library is at work for Tandem rather than for the user."""
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARY):
        frame = frame.f_back
    return frame is not None and is_ours(frame.f_code)


def _makes_named_tuple(frame) -> bool:
    """Whether it is the constructor that collections.namedtuple writes for a class: it reads its arguments alone."""
    return frame.f_code.co_filename == "<string>" and frame.f_globals.get("__name__", "").startswith("namedtuple_")


class Names:
    """What the instructions of one code object read that have run. A chain is what is looked up right behind a name: np.random.rand
    gives ("random", "rand"); one without names: the object goes elsewhere."""

    def __init__(self):
        self.globals: dict[str, set[tuple]] = {}
        self.cells: dict[str, set[tuple]] = {}
        self.imports: set[str] = set()
        self.attributes: set[str] = set()
        self.computes = False


class Observation:
    """What ran, of one or several calls."""

    def __init__(self):
        self.seen: dict[types.CodeType, set[int]] = {}
        self.globals: dict[types.CodeType, dict] = {}
        self._names: dict[types.CodeType, Names] = {}

    def call(self, fn, args: tuple, kwargs: dict):
        """The result of a call, which is observed."""
        locals_: dict[types.CodeType, object] = {}

        def begin(frame, event, arg):
            code = frame.f_code
            if (code.co_filename.startswith(_LIBRARY) and _called_by_us(frame)) or _makes_named_tuple(frame):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            found = locals_.get(code)
            if found is None:
                add = self.seen.setdefault(code, set()).add
                self.globals[code] = frame.f_globals

                def found(frame, event, arg):
                    if event == "opcode":
                        add(frame.f_lasti)
                    return locals_[code]

                locals_[code] = found
            return found

        before, collects = sys.gettrace(), gc.isenabled()
        gc.disable()  # finalizers of others' objects are no part of the call
        sys.settrace(begin)
        try:
            return fn(*args, **kwargs)
        finally:
            sys.settrace(before)
            if collects:
                gc.enable()

    def merge(self, other: Observation) -> bool:
        """Adds what another one saw; whether that is nothing new."""
        known = True
        for code, offsets in other.seen.items():
            self.globals[code] = other.globals[code]
            mine = self.seen.get(code)
            if mine is not None and offsets <= mine:
                continue
            before = set() if mine is None else self._data(code)
            self.seen[code] = offsets | (mine or set())
            self._names.pop(code, None)
            # Of Tandem's own code only settings count: what it does once in a process (kernels, imports) is nothing new.
            known = known and is_ours(code) and (compiles(code) or self._data(code) <= before)
        return known

    def _data(self, code: types.CodeType) -> set[str]:
        """Globals that code has read and that are neither functions nor modules."""
        scope = self.globals[code]
        return {n for n in self.names(code).globals if is_setting(scope, n)}

    def names(self, code: types.CodeType) -> Names:
        found = self._names.get(code)
        if found is None:
            found = self._names[code] = _names(code, self.seen.get(code, ()))
        return found

    def attributes(self) -> set[str]:
        return set().union(*[self.names(code).attributes for code in self.seen])


def _names(code: types.CodeType, offsets) -> Names:
    names = Names()
    instructions = list(dis.get_instructions(code))
    ran = set(offsets)
    for before, after in itertools.pairwise(instructions):
        if before.opname == "EXTENDED_ARG" and before.offset in ran:
            ran.add(after.offset)
    for number, one in enumerate(instructions):
        if one.offset not in ran:
            continue
        name = one.argval
        if one.opname in _GLOBALS:
            names.globals.setdefault(name, set()).add(_chain(instructions, number))
        elif "DEREF" in one.opname:
            names.cells.setdefault(name, set()).add(_chain(instructions, number))
        elif one.opname == "IMPORT_NAME":
            names.imports.add(name)
        elif isinstance(name, str) and ("ATTR" in one.opname or "METHOD" in one.opname or one.opname == "IMPORT_FROM"):
            names.attributes.add(name)
        elif one.opname.startswith(_ARITHMETIC):
            names.computes = True
    return names


def _chain(instructions: list, number: int) -> tuple:
    chain = []
    for one in instructions[number + 1 :]:
        if one.opname in ("EXTENDED_ARG", "CACHE"):
            continue
        if not (isinstance(one.argval, str) and ("ATTR" in one.opname or "METHOD" in one.opname)):
            break
        chain.append(one.argval)
    return tuple(chain)
