"""What the Python code of a call can read: followed from its functions and arguments, and written down as facts.

A fact is (kind, object, keys, values, comparisons), as src/capture/state_guards.h has it. What is reached and not understood (an
open file, an array of another library, a clock) cannot be watched: an error names it.
"""

from __future__ import annotations

import builtins
import functools
import sys
import types
from collections import OrderedDict, defaultdict
from typing import NamedTuple

from tandem import _runtime
from tandem.compiling.compiled import Compiled
from tandem.errors import UnsupportedError
from tandem.nn.module import Module
from tandem.optim.optimizer import Optimizer
from tandem.replay.observe import OURS, Observation, compiles, is_ours, is_setting, nested
from tandem.switches import Switch

Tensor = _runtime.Tensor

# FactKind and Compare of src/capture/state_guards.h; From of call_replay.h
DICT, SEQUENCE, CELL, ENTRY, TYPE, CLASS, FUNCTION, SET, ATTRIBUTE = range(9)
IDENTITY, VALUE, TENSOR, NUMBER = range(4)
FROM_ARGUMENT, FROM_OBJECT, FROM_GRAD, FROM_ITEM = range(4)

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range, slice)
_PURE_MODULES = {
    "math",
    "cmath",
    "operator",
    "_operator",
    "itertools",
    "functools",
    "_functools",
    "collections",
    "types",
    "abc",
    "_abc",
}
_EFFECTS = {
    "print": "prints", "input": "reads from the terminal", "open": "opens a file", "exec": "runs other code",
    "eval": "runs other code",
    "compile": "compiles other code", "id": "looks at addresses of objects", "hash": "looks at addresses of objects",
    "globals": "looks at all globals", "locals": "looks at all locals", "vars": "looks at all attributes",
    "dir": "looks at all attributes", "breakpoint": "stops in a debugger", "memoryview": "looks at memory", "__import__": "imports",
}  # fmt: skip
_DYNAMIC = ("getattr", "setattr", "delattr", "hasattr")
_CALLABLES_IN_C = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip
_MOST_FACTS = 100_000
_SAFE = {object, type, dict, list, tuple, set, frozenset, int, bool, float, complex, str, bytes, range, slice, property, type(None),
         staticmethod, classmethod, super, enumerate, zip, map, filter, reversed, OrderedDict, defaultdict, functools.partial,
         types.SimpleNamespace, types.FunctionType, types.MethodType}  # fmt: skip
_MEMBERS = ("_parameters", "_buffers", "_modules")
_ADDRESSES = ("data_ptr", "_version", "untyped_storage", "__array_interface__", "__cuda_array_interface__")
_VOLATILE = tuple(OURS + name for name in ("memory.py", "profiler.py"))


class Found(NamedTuple):
    """A tensor that was reached."""

    origin: int
    index: int
    object: object
    key: object
    tensor: Tensor
    path: str


def of_tandem(kind: type) -> bool:
    return (kind.__module__ or "").split(".")[0] == "tandem"


class State:
    """Facts about all that one call can reach, before it."""

    def __init__(self, name: str, fn, args: tuple, kwargs: dict, observed: Observation):
        self.name, self.observed = name, observed
        self.facts: list[tuple] = []
        self.paths: list[str] = []
        self.tensors: list[Found] = []
        self.generators: list = []
        self.rates: list[tuple[dict, str, list]] = []  # learning rates that only optimisers read
        self._gradients: dict[int, list[Found]] = {}
        self._objects: set[int] = set()
        self._strict: set[int] = set()  # objects that were reached where they have to be understood
        self._outside: set[int] = set()  # containers that were reached from the user's side
        self._numbers: dict[int, int] = {}  # tensor -> its number
        self._seen: dict[int, object] = {}  # objects, which stay alive
        self._codes: set = set()
        self._attributes = observed.attributes()
        users = [code for code in observed.seen if not is_ours(code)]
        self._everything = any(name in observed.names(code).globals for code in users for name in _DYNAMIC[:3])
        self._user_attributes = set().union(*[observed.names(code).attributes for code in users])
        self._classes: set[int] = set()
        self._entries: dict[tuple[int, str], set] = {}  # of modules: which chains were followed
        for attribute in self._user_attributes.intersection(_ADDRESSES):
            self._refuse(f"it looks at memory itself ({attribute})")
        self.args = self._argument(args, "the arguments")
        self.kwargs = self._argument(kwargs, "the arguments")
        self._walk(fn, name, True)
        for code in users:
            for imported in observed.names(code).imports:
                self._walk_module(sys.modules.get(imported.split(".")[0]), imported.split(".")[0], {()})
        self._walk_own_globals()

    # -- facts

    def _fact(self, kind: int, of, keys: tuple, values: tuple, compare: bytes, path: str):
        if len(self.facts) >= _MOST_FACTS:
            self._refuse(f"{path} leads to more objects than can be watched")
        self.facts.append((kind, of, keys, values, compare))
        self.paths.append(path)

    def _refuse(self, what: str, fix: str = "do that outside of the function, or leave out replay=True"):
        raise UnsupportedError("compile", f"{self.name} cannot be replayed: {what}", fix=fix)

    @staticmethod
    def compare(value) -> int:
        return (
            VALUE
            if isinstance(value, _PLAIN) or (type(value) is tuple and all(isinstance(v, _PLAIN) for v in value))
            else IDENTITY
        )

    def _values(self, values) -> bytes:
        return bytes(self.compare(v) for v in values)

    # -- arguments

    def _argument(self, o, path: str) -> tuple:
        """The shape of an argument, as src/bindings/call_replay.cc reads it."""
        if isinstance(o, Tensor):
            index = sum(1 for t in self.tensors if t.origin == FROM_ARGUMENT)
            self._tensor(o, path, FROM_ARGUMENT, index, None, None)
            return (0,)
        if isinstance(o, _PLAIN):
            return (1, o)
        if type(o) in (tuple, list):
            return (3 if type(o) is tuple else 4, [self._argument(item, f"{path}[{i}]") for i, item in enumerate(o)])
        if type(o) is dict:
            return (5, [self._argument(item, f"{path}[{k!r}]") for k, item in o.items()], list(o))
        self._walk(o, path, True)
        return (2, o)

    # -- tensors

    def _tensor(self, t, path: str, origin: int = FROM_OBJECT, index: int = 0, owner=None, key=None):
        if origin == FROM_OBJECT:
            if id(t) in self._objects:
                return
            self._objects.add(id(t))
        if t._in_parts or _runtime.parts_of(t) is not None:
            self._refuse(f"{path} is a sparse, nested or sharded tensor")
        if not t.is_leaf:
            self._refuse(f"{path} was computed by recorded operators: gradients would flow out of the function",
                         "call backward() in the function that computes it, or give x.detach()")  # fmt: skip
        if _runtime.has_hooks(t):
            self._refuse(f"{path} has hooks")
        number = len(self.tensors)
        self._numbers.setdefault(id(t), number)
        self._seen[id(t)] = t
        self.tensors.append(Found(origin, index, t if origin == FROM_OBJECT else owner, key, t, path))
        if t.grad is not None:
            self._gradients[number] = [Found(FROM_GRAD, number, None, None, t.grad, f"{path}.grad")]
            self._tensor(t.grad, f"{path}.grad", FROM_GRAD, number)
        own = getattr(t, "__dict__", None)
        if own:
            self._dict(own, path, True, own.items(), lambda k: f"{path}.{k}", False, self._attributes, True)

    def gradients_of(self, number: int) -> list[Found]:
        return self._gradients.get(number, [])

    def knows(self, o) -> bool:
        """Whether an object was there before the call, and was reached."""
        return self._seen.get(id(o)) is o

    def number_of(self, t) -> int:
        return self._numbers.get(id(t), -1)

    def free_rates(self) -> list[tuple[dict, str]]:
        """Those of `rates` that really nobody else has looked at."""
        return [(group, name) for group, name, groups in self.rates if not {id(group), id(groups)} & self._outside]

    def sources(self) -> _runtime.TensorSources:
        made = _runtime.TensorSources()
        for found in self.tensors:
            made.add(found.origin, found.index, found.object, found.key, found.tensor)
        return made

    # -- objects

    def _walk(self, o, path: str, used: bool, trusted: bool = False):
        """used: code that ran may have read it, so that it has to be understood; trusted: it belongs to Tandem."""
        if isinstance(o, Tensor):
            self._tensor(o, path)
            return
        if isinstance(o, _PLAIN):
            return
        if not trusted and isinstance(o, (dict, list)):
            self._outside.add(id(o))
        strict = used and not trusted
        if id(o) in self._seen and (not strict or id(o) in self._strict):
            return
        self._seen[id(o)] = o
        if strict:
            self._strict.add(id(o))
        kind = type(o)
        if isinstance(o, types.FunctionType):
            if not is_ours(o.__code__):
                self._dict(
                    o.__dict__, path, used, o.__dict__.items(), lambda k: f"{path}.{k}", False, self._attributes, True
                )
            self._function(o, path)
        elif isinstance(o, types.MethodType):
            self._walk(o.__func__, path, used, trusted)
            self._walk(o.__self__, f"{path}.__self__", used, trusted)
        elif isinstance(o, (staticmethod, classmethod)):
            self._walk(o.__func__, path, used, trusted)
        elif isinstance(o, property):
            for f in (o.fget, o.fset, o.fdel):
                if f is not None:
                    self._walk(f, path, used, trusted)
        elif isinstance(o, type):
            self._class(o, path)
        elif isinstance(o, types.ModuleType):
            self._walk_module(o, path, {()})
        elif isinstance(o, _CALLABLES_IN_C):
            self._in_c(o, path, used and not trusted)
        elif isinstance(o, (list, tuple)):
            if isinstance(o, list):
                self._fact(SEQUENCE, o, (), tuple(list.__iter__(o)), self._values(list.__iter__(o)), path)
            for i, item in enumerate(o):
                self._walk(item, f"{path}[{i}]", used, trusted)
            if kind not in (list, tuple):
                self._instance(o, path, used, trusted)
        elif isinstance(o, dict):
            self._dict(o, path, used, dict.items(o), lambda k: f"{path}[{_short(k)}]", trusted)
            if kind not in (dict, OrderedDict, defaultdict):
                self._instance(o, path, used, trusted)
        elif isinstance(o, (set, frozenset)):
            self._fact(SET, o, (), (frozenset(o),), bytes([IDENTITY]), path)
            for item in o:
                self._walk(item, f"an item of {path}", used, trusted)
        elif isinstance(o, functools.partial):
            for item in (o.func, *o.args, *o.keywords.values()):
                self._walk(item, path, used, trusted)
        elif isinstance(o, _runtime.Generator):
            self.generators.append(o)
        elif isinstance(o, Compiled):
            self._walk(o._fn, path, used, trusted)
        elif isinstance(o, Switch):
            self._fact(ATTRIBUTE, o, ("value",), (o.value,), bytes([VALUE]), f"TANDEM_{o.name}")
        elif isinstance(o, Module) or (of_tandem(kind) and hasattr(o, "__dict__")):
            self._instance(o, path, used, of_tandem(kind))
        elif of_tandem(kind) or (kind.__module__ == "numpy" and not hasattr(o, "__len__")):
            pass  # a dtype, an operator, a number: they do not change
        elif _is_transparent(kind) and (hasattr(o, "__dict__") or _slots(kind)):
            self._instance(o, path, used, False)
        elif used and not trusted:
            self._refuse(f"it reads {path}, a {kind.__module__}.{kind.__qualname__}, whose changes cannot be seen")

    def _dict(self, o: dict, path: str, used: bool, items, named, trusted: bool = False, only=None, of_instance=False):
        """only: the attributes of an instance that are followed; None: all of them."""
        keys, values = tuple(dict.keys(o)), tuple(dict.values(o))
        self._fact(DICT, o, keys, values, self._values(values), path)
        for key, value in items:
            if not isinstance(key, _PLAIN):
                self._walk(key, f"a key of {path}", used, trusted)
            if only is None or key in only:
                read = used and (
                    only is not None
                    or not of_instance
                    or key in self._attributes
                    or key in _MEMBERS
                    or self._everything
                )
                self._walk(value, named(key), read, trusted and key not in self._user_attributes)

    def _instance(self, o, path: str, used: bool, trusted: bool):
        kind = type(o)
        self._fact(TYPE, o, (), (kind,), b"", path)
        self._class(kind, kind.__qualname__)
        own = getattr(o, "__dict__", None)
        whole = trusted or self._everything or isinstance(o, Module)
        if isinstance(o, Optimizer):
            self._rates(o)
        if isinstance(own, dict):
            self._dict(
                own,
                path,
                used,
                list(own.items()),
                lambda k: f"{path}.{k}",
                trusted,
                None if whole else self._attributes,
                True,
            )
        for name in _slots(kind):
            value = getattr(o, name, self)
            if value is self:
                self._fact(ATTRIBUTE, o, (name,), (), b"", f"{path}.{name}")
                continue
            self._fact(ATTRIBUTE, o, (name,), (value,), self._values([value]), f"{path}.{name}")
            if whole or name in self._attributes:
                self._walk(value, f"{path}.{name}", used, trusted)

    def _rates(self, optimizer):
        """Learning rates become inputs where nobody but the optimiser looks at them: schedules end no replay. Each is an object
        of its own now, by which it is known again among the numbers of the program."""
        rule = type(optimizer).rule
        if (
            not is_ours(rule.__code__)
            or self.observed.names(rule.__code__).computes
            or "param_groups" in self._user_attributes
        ):
            return
        for group in optimizer.param_groups:
            if type(group.get("lr")) is float:
                group["lr"] *= 1.0
                self.rates.append((group, "lr", optimizer.param_groups))

    def _class(self, kind: type, path: str):
        if id(kind) in self._classes:
            return
        self._classes.add(id(kind))
        if not _is_transparent(kind):
            self._refuse(f"it uses {path} ({kind.__module__}.{kind.__qualname__}), whose effects cannot be seen")
        if not _runtime.is_python_class(kind, State) and not of_tandem(kind):  # it cannot be changed
            return
        self._seen[id(kind)] = kind
        self._fact(CLASS, kind, (), (_runtime.class_version(kind),), bytes([IDENTITY]), path)
        for base in kind.__mro__:
            for name, value in list(vars(base).items()):
                f = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
                is_code = isinstance(f, (types.FunctionType, property))
                is_data = (
                    name in self._attributes
                    and not name.startswith("__")
                    and not of_tandem(base)
                    and _runtime.is_python_class(base, State)
                )
                if is_code or is_data:
                    self._walk(f, f"{base.__qualname__}.{name}", name in self._attributes, of_tandem(base))

    def _in_c(self, o, path: str, used: bool):
        module, owner = getattr(o, "__module__", None), getattr(o, "__self__", None)
        name = getattr(o, "__name__", path)
        if isinstance(owner, types.ModuleType):
            module = owner.__name__
        elif owner is not None and not isinstance(owner, type):
            self._walk(owner, path, used)
            return
        elif module is None:  # a method of a class of C
            module = getattr(getattr(o, "__objclass__", owner), "__module__", "builtins")
        if module == "builtins":
            if used and name in _EFFECTS:
                self._refuse(f"it {_EFFECTS[name]} ({name})")
        elif used and module not in _PURE_MODULES and module.split(".")[0] != "tandem":
            self._refuse(f"it uses {module}.{name}, whose effects cannot be seen")

    # -- functions

    def _function(self, f: types.FunctionType, path: str):
        codes = [code for code in nested(f.__code__) if code in self.observed.seen]
        if f.__code__ not in self.observed.seen:
            return  # it has not run: that it is this one is enough
        self._codes.update(codes)
        closure = f.__closure__
        self._fact(FUNCTION, f, (), (f.__code__, f.__defaults__, f.__kwdefaults__, closure), b"", path)
        for name, value in (f.__kwdefaults__ or {}).items():
            self._walk(value, f"{path}'s default of {name}", True)
        for value in f.__defaults__ or ():
            self._walk(value, f"a default of {path}", True)
        own = is_ours(f.__code__)
        for name, cell in zip(f.__code__.co_freevars, closure or (), strict=True):
            chains = set().union(*[self.observed.names(code).cells.get(name, ()) for code in codes])
            try:
                value = cell.cell_contents
            except ValueError:
                self._fact(CELL, cell, (), (), b"", name)
                continue
            if name == "__class__":
                continue
            self._fact(CELL, cell, (), (value,), self._values([value]), name)
            if isinstance(value, types.ModuleType):
                self._walk_module(value, name, chains)
            else:
                self._walk(value, name, bool(chains), own)
        if not own:
            for code in codes:
                self._globals(code, f.__globals__)

    def _globals(self, code, scope: dict):
        for name, chains in self.observed.names(code).globals.items():
            if name in scope:
                value = scope[name]
                self._fact(ENTRY, scope, (name,), (value,), self._values([value]), name)
            else:
                self._fact(ENTRY, scope, (name,), (), b"", name)
                value = getattr(builtins, name, None)
                self._fact(
                    ENTRY,
                    vars(builtins),
                    (name,),
                    (value,) if hasattr(builtins, name) else (),
                    self._values([value]),
                    name,
                )
            if isinstance(value, types.ModuleType):
                self._walk_module(value, name, chains)
            else:
                self._walk(value, name, True)

    def _walk_module(self, module, path: str, chains: set[tuple]):
        if module is None:
            return
        self._seen[id(module)] = module
        ours = (module.__name__ or "").split(".")[0] == "tandem" or (
            getattr(module, "__file__", None) or ""
        ).startswith(OURS)
        names: dict[str, set[tuple]] = {}
        for chain in chains:
            if chain:
                names.setdefault(chain[0], set()).add(chain[1:])
            else:
                names.update({n: names.get(n, set()) | {()} for n in self._attributes if n in vars(module)})
        for name, rest in names.items():
            key = id(module), name
            if key in self._entries and rest <= self._entries[key]:
                continue
            known = self._entries.setdefault(key, set())
            if not known:
                value = vars(module).get(name, self)
                if value is self:
                    value = getattr(module, name, None)  # made when it is asked for
                else:
                    self._fact(ENTRY, vars(module), (name,), (value,), self._values([value]), f"{path}.{name}")
            else:
                value = getattr(module, name, None)
            known |= rest
            if isinstance(value, types.ModuleType):
                self._walk_module(value, f"{path}.{name}", rest)
            else:
                self._walk(value, f"{path}.{name}", True, ours)

    def _walk_own_globals(self):
        """Settings of Tandem that live in Python: data among the globals of its modules."""
        done = set()
        self.first_own = len(self.facts)
        for code, scope in self.observed.globals.items():
            if not is_ours(code) or compiles(code):
                continue
            for name in self.observed.names(code).globals:
                value = scope.get(name)
                if (id(scope), name) in done or not is_setting(scope, name):
                    continue
                done.add((id(scope), name))
                if isinstance(value, Switch):
                    self._walk(value, name, False)
                elif isinstance(value, (type(None), bool, int, float, str)) or name.islower():
                    self._fact(
                        ENTRY, scope, (name,), (value,), self._values([value]), f"{scope.get('__name__')}.{name}"
                    )

    def check_codes(self, seen: Observation):
        """Whether all code of the user's that has run is code that was followed."""
        for code in seen.seen:
            if code.co_filename in _VOLATILE:
                self._refuse("it looks at the state of memory, or at a profile")
            if not is_ours(code) and code not in self._codes:
                where = f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})"
                self._refuse(f"it runs {where}, which is reached in a way that cannot be watched")


def _short(key) -> str:
    text = repr(key) if isinstance(key, _PLAIN) else f"a {type(key).__name__}"
    return text if len(text) < 40 else text[:37] + "..."


def _is_transparent(kind: type) -> bool:
    """Whether objects of a class have no state but attributes and items that can be looked at."""
    return all(
        base in _SAFE or of_tandem(base) or issubclass(base, BaseException) or _runtime.is_python_class(base, State)
        for base in kind.__mro__
    )


def _slots(kind: type) -> list[str]:
    found = []
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        found += [slots] if isinstance(slots, str) else list(slots)
    return [name for name in found if name not in ("__dict__", "__weakref__")]
