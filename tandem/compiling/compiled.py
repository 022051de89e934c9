"""td.compile: functions whose numeric work runs as whole programs.

The function's Python code runs at every call, so nothing that it looks at (attributes, closures, modes, branches) can go stale.
Operators are only captured; at the end, or when a value is read, everything captured becomes one program, which is compiled the
first time and found again later. See Note [Capture] in src/capture/capture.h.
"""

from __future__ import annotations

import builtins
import copy
import functools
import sys
import types
from typing import NamedTuple

from tandem import _runtime, forks, hooks
from tandem.control.body import body_name
from tandem.errors import DTypeError, UnsupportedError, ValueRangeError, module_calls
from tandem.graph.ir import Value
from tandem.program.recompiles import check_limit
from tandem.program.report import Report, check_budget
from tandem.switches import EAGER


class Compiled:
    """A compiled function. Call it like the function itself."""

    def __init__(self, fn, whole: bool = False, memory_budget: float | None = None, name: str | None = None,
                 recompile_limit: float | None = None, target=None):  # fmt: skip
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._name = name or getattr(fn, "__name__", None) or type(fn).__name__
        self._whole = whole
        self._report = Report(memory_budget, recompile_limit, self._name)
        self._programs = _runtime.ProgramCache(self._report)
        self._target = target
        if target is not None:
            self._remote = target.compiled_function(self._name)
            self._programs.set_remote(self._remote)

    def __call__(self, *args, **kwargs):
        if EAGER or _runtime.capturing():  # inside another compiled function: part of its program
            return self._fn(*args, **kwargs)
        return _runtime.call_captured(self._programs, self._whole, None, self._fn, args, kwargs, _ended)

    def _captured(self, args: tuple, kwargs: dict, record=None):
        """A call whose operators become programs. record: what is to be known of it to replay it."""
        return _runtime.call_captured(self._programs, self._whole, record, self._fn, args, kwargs, _ended)

    def __repr__(self):
        count = len(self._programs.program_runs())
        return f"<compiled function {self._name}: {count} {'program' if count == 1 else 'programs'}>"

    @property
    def __defaults__(self):
        return self._fn.__defaults__

    @property
    def __kwdefaults__(self):
        return self._fn.__kwdefaults__

    @property
    def recompiles(self) -> int:
        """How many programs were made besides the first that begins at each line. fn.explain() tells why.

        >>> double = td.compile(lambda x: x * 2)
        >>> y = double(td.ones(2)), double(td.ones(3)), double(td.ones(3, 3))
        >>> double.recompiles
        1
        """
        return self._report.recompiles.count

    def _settings(self) -> tuple:
        """What a copy of it is made with, besides the function."""
        return self._whole, self._report.memory_budget, self._name, self._report.recompiles.own_limit, self._target

    def __copy__(self):
        return type(self)(self._fn, *self._settings())

    def __deepcopy__(self, memo):
        # As Python copies functions: those of a module are what they were, a bound method is one of the copied object.
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__init__(copy.deepcopy(self._fn, memo), *self._settings())
        return copied

    def __reduce__(self):
        if _named(self) is self:  # as functions are pickled: by name
            return self.__qualname__
        if isinstance(self._fn, types.FunctionType) and _named(self._fn) is not self._fn:
            name = f"{self.__module__}.{self.__qualname__}"
            raise UnsupportedError(
                "compile", f"the compiled function {name} cannot be pickled: functions are pickled by name, and {name} is another "
                "object or none", fix="define it at the top of a module, under its own name, with @td.compile",
            )  # fmt: skip
        return type(self), (self._fn, *self._settings())

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)

    def explain(self) -> str:
        """Which programs were compiled, why each exists and where it ends, how often it ran and what it cost to make, as text.

        >>> double = td.compile(lambda x: x * 2)
        >>> y = double(td.ones(2)), double(td.ones(3))
        >>> print(double.explain().splitlines()[1])
          program 0: 1 calls -> 4 nodes, 4 after passes -> 1 steps; ran 2 times
        """
        if self._target is not None:
            return self._remote.explain()
        return self._report.explain(self._name, self._programs.num_traces, dict(self._programs.program_runs()))

    def graph(self, *number_or_arguments, **kwargs):
        """The graph of a compiled program, after all passes: to print, draw (`view`), save and run.

        Without arguments that of the latest program, with an int that of the program with this number in `explain()`. With anything
        else, arguments for the function, it is called with them, and gives the graph of the program that this ran (if there were
        several, of the one with the highest number).

        >>> double = td.compile(lambda x: x * 2)
        >>> y = double(td.ones(2))
        >>> double.graph().outputs
        (<symbolic f32[s0] from mul>,)
        >>> double.graph(td.ones(2, 3)).outputs
        (<symbolic f32[s0,3] from mul>,)
        """
        entry = self._report.entry(self._number(number_or_arguments, kwargs))
        graph = self._report.graph(entry)
        if not graph._sealed:
            graph.labels = entry.get("labels")
        return graph.seal()

    def _number(self, args: tuple, kwargs: dict) -> int:
        """The program that fn.graph() or fn.memory() is asked for."""
        if not args and not kwargs:
            return -1
        if len(args) == 1 and not kwargs and isinstance(args[0], int):
            return args[0]
        before = dict(self._programs.program_runs())
        self(*args, **kwargs)
        ran = [number for number, runs in self._programs.program_runs() if runs != before.get(number, 0)]
        if not ran:
            raise ValueRangeError(
                "compile", f"{self._name} was called with these arguments, and no program ran",
                fix="give arguments that compute something, outside of other compiled functions and TANDEM_EAGER=1, or the number "
                "of a program in fn.explain()",
            )  # fmt: skip
        return max(ran)

    def memory(self, *number_or_arguments, **kwargs) -> dict:
        """What a compiled program takes with the sizes that it met first, in bytes, known before it runs. Which: see `graph`.

        {"inputs", "outputs", "peak", "at"}: peak counts what the program allocates at one time, results included, inputs not; at is
        the step where that is.

        >>> double = td.compile(lambda x: x * 2)
        >>> y = double(td.ones(256))
        >>> double.memory()["outputs"]
        1024
        """
        return dict(self._report.memory(self._report.entry(self._number(number_or_arguments, kwargs))))


def _named(fn):
    """What the module and name that a function says it has lead to."""
    found = sys.modules.get(getattr(fn, "__module__", None) or "__main__")
    for name in getattr(fn, "__qualname__", "<none>").split("."):
        found = getattr(found, name, None)
    return found


class _Line(NamedTuple):
    """What td.print was given inside a compiled function."""

    objects: list
    settings: dict
    segment: int  # the program that it belongs to: how many had ended before
    call: int  # how many operators had been called


def _ended(error: BaseException | None, lines: list[_Line] | None):
    """A call of a compiled function has failed, has printed, or has compiled operators."""
    forks.collect()
    if isinstance(error, Exception):
        module_calls.note(error, None)
    if lines:
        _print_lines(lines, getattr(error, "_call", None))


def _print_lines(lines: list[_Line], failed: int | None):
    """Prints lines whose program has run; failed: the call at which it stopped, with the lines behind it never reached."""
    for line in lines:
        reached = failed is None or line.call <= failed
        if reached and not any(_runtime.pending(t) for t in _tensors_in(line.objects)):
            builtins.print(*line.objects, **line.settings)


def _at_this_moment(o, copies: dict):
    """A copy, as far as it may still change before the program runs: tensors, and containers of them, which may hold themselves."""
    if isinstance(o, _runtime.Tensor):
        return o.detach().clone()
    if isinstance(o, tuple):
        made = [_at_this_moment(item, copies) for item in o]
        return type(o)(*made) if hasattr(o, "_fields") else tuple(made) if type(o) is tuple else o
    if isinstance(o, (list, dict)):
        if id(o) in copies:
            return copies[id(o)]
        made = copies[id(o)] = copy.copy(o)
        for key, item in list(enumerate(o) if isinstance(o, list) else o.items()):
            made[key] = _at_this_moment(item, copies)
        return made
    return copy.copy(o) if isinstance(o, (set, bytearray)) else o


def _tensors_in(objects) -> list:
    found, seen, stack = [], set(), list(objects)
    while stack:
        o = stack.pop()
        if isinstance(o, _runtime.Tensor):
            found.append(o)
        elif isinstance(o, (tuple, list, dict)) and id(o) not in seen:
            seen.add(id(o))
            stack.extend(o.values() if isinstance(o, dict) else o)
    return found


def print(*objects, sep: str = " ", end: str = "\n", file=None):
    """Prints tensors and other objects as the built-in does, but without ending a compiled program to get at their values.

    Inside a compiled function the lines appear in order when its program has run, with the values that the tensors had at the call,
    those in lists, tuples and dicts included. Where the program fails, what was printed before the failing operator appears.

    >>> @td.compile
    ... def f(x):
    ...     y = x * 2
    ...     td.print("y is", y)
    ...     return y + 1
    >>> z = f(td.ones(2))
    y is tensor([2., 2.])
    """
    settings = {"sep": sep, "end": end, "file": file}
    if any(isinstance(o, Value) for o in objects):
        raise UnsupportedError(
            "print", "a symbolic tensor has no value to print while a graph is built",
            fix="in a deferred graph use td.Print(x, [x], message), which prints whenever x is computed",
        )  # fmt: skip
    if _runtime.recording():
        raise UnsupportedError(
            "print", "a function compiled with replay=True prints, and a replay would not",
            fix="leave out replay=True while you look",
        )  # fmt: skip
    if _runtime.in_body():
        _refuse_in_body(objects)
    lines, segments = _runtime.compiled_lines(), _runtime.compiled_segments()
    if lines is None or not _runtime.capturing():
        builtins.print(*objects, **settings)
        return
    if lines and lines[0].segment < segments:  # those of programs that have ended
        ended = [line for line in lines if line.segment < segments]
        del lines[: len(ended)]
        _print_lines(ended, None)
    copies: dict[int, object] = {}
    made = [_at_this_moment(o, copies) for o in objects]
    lines.append(_Line(made, settings, segments, _runtime.captured_calls()))


def _refuse_in_body(objects):
    name = body_name()
    fix = f"return the values from it, and print what td.{name} gives"
    if name in ("checkpoint", "jvp", "vmap"):  # whose function runs once as eager code, too
        if not any(_runtime.pending(t) for t in _tensors_in(objects)):
            return
    else:
        fix += "; or look at it without td.compile: TANDEM_EAGER=1, or `with td.switches(EAGER=1):`"
    raise UnsupportedError(
        "print", f"a function given to td.{name} is only traced here, to run later: there are no values to print yet",
        fix=fix,
    )  # fmt: skip


def compile(fn=None, *, whole: bool = False, memory_budget: float | None = None, recompile_limit: float | None = None,
            device: str | None = None, target=None, replay: bool = False, fullgraph: bool = False, dynamic=None, backend=None,
            mode=None, options=None):  # fmt: skip
    """fn with its operators run as whole programs: fused across operators, without intermediate results in memory.

    A module gives a module that shares its parameters and names. Functions that train work, too: backward(), in-place updates and
    optimiser steps become part of the program. Reading a value (`if loss > 3:`, item()) ends a program and begins another; with
    whole=True it is an error instead. (A write through a view, such as x[0].add_(1), begins another program all the same.)

    memory_budget: what a program may take at its peak, results included and inputs not: up to 1.0 a part of what it would take
    otherwise, above that bytes. Intermediate results are then computed again instead of kept, the cheapest first, as far as that
    helps; fn.memory() tells what was reached.

    recompile_limit: how many more programs are made where one begins already, because sizes, arguments or branches are other ones;
    then such calls run eagerly. A RecompileWarning tells of it, earlier still of half as many. Default: TANDEM_RECOMPILE_LIMIT.

    device: "pjrt:PLUGIN" runs it on an accelerator behind PJRT's C interface: PLUGIN is the path of a plugin, "tpu" or "cuda".
    Arguments are tensors by position, results come to the CPU (docs/deployment.md). Without it, programs run where tensors are.

    target: a td.distributed.Cluster, on whose tasks programs then run: what is called under td.device("/job:worker/task:1"), and
    its backward, on that task (docs/cluster.md). What the function writes comes back here at the end of a call.

    replay: the Python code runs only when something that it reads has changed (arguments but for the values of tensors, attributes,
    globals, modes); otherwise a call costs no more than its program. What a replay would lose (printing, counting, reading a value)
    is an error that names it. See docs/compile.md.

    Of PyTorch's options, fullgraph means whole; dynamic, backend, mode and options choose nothing here and are ignored.

    >>> step = td.compile(lambda x: (x * 2 + 1).sum())
    >>> step(td.ones(3))
    tensor(9.)
    """
    whole = whole or fullgraph
    if fn is None:
        return lambda f: compile(
            f,
            whole=whole,
            memory_budget=memory_budget,
            recompile_limit=recompile_limit,
            device=device,
            target=target,
            replay=replay,
        )
    check_budget("compile", memory_budget)
    check_limit(recompile_limit)
    if target is not None and not hasattr(target, "compiled_function"):
        raise DTypeError(
            "compile", f"target is a {type(target).__name__}; it must be a cluster", fix="give a td.distributed.Cluster"
        )
    if not callable(fn):
        raise DTypeError("compile", f"a {type(fn).__name__} cannot be called", fix="give a function or a module")
    if replay and (target is not None or device is not None):
        raise UnsupportedError(
            "compile", "replay=True is for programs of this process, and target and device run them elsewhere",
            fix="leave out one of them",
        )  # fmt: skip
    if device is not None:
        if not device.startswith("pjrt:"):
            raise ValueRangeError(
                "compile",
                f"device is {device!r}; it may be 'pjrt:PLUGIN'",
                fix="other programs run where their tensors are",
            )
        return hooks.compile_for(fn, device)
    nn = sys.modules.get("tandem.nn.module")
    if nn is not None and isinstance(fn, nn.Module):
        # Another object of the same attributes, the very same dict: whatever is changed on one is changed on the other.
        twin = object.__new__(type(fn))
        object.__setattr__(twin, "__dict__", fn.__dict__)
        return compile_module(twin, whole, memory_budget, recompile_limit, target, replay)
    kind = hooks.replayed_class() if replay else Compiled
    return kind(fn, whole, memory_budget, recompile_limit=recompile_limit, target=target)


def compile_module(
    module,
    whole: bool,
    memory_budget: float | None,
    recompile_limit: float | None = None,
    target=None,
    replay: bool = False,
):
    """Makes calls of this very module run as compiled programs. It stays what it is: parameters, names, modes, hooks.

    Its class becomes a subclass of its class, made for it alone, that has __call__ and what a compiled function has.
    """
    kind = type(module)
    if "_compiled_call" in kind.__dict__:  # compiled already: once more, as asked for now
        kind = kind.__base__
    make = hooks.replayed_class() if replay else Compiled
    compiled = make(kind.__call__, whole, memory_budget, kind.__name__, recompile_limit, target)

    def call(self, *args, **kwargs):
        return compiled(self, *args, **kwargs)

    members = {
        "__call__": call,
        "_compiled_call": compiled,
        "__doc__": kind.__doc__,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
    }
    for name in ("explain", "graph", "memory"):
        if not hasattr(kind, name):
            members[name] = functools.partialmethod(_ask, name)
    members["__reduce__"] = lambda self: (
        _restore_module,
        (kind, self.__dict__.copy(), whole, memory_budget, recompile_limit, replay),
    )
    object.__setattr__(module, "__class__", type(kind.__name__, (kind,), members))
    return module


def _ask(module, name: str, *args, **kwargs):
    """What the compiled function of a module has to say: explain(), graph(), memory()."""
    if kwargs or (args and not isinstance(args[0], int)):  # an example call
        args = module, *args
    return getattr(type(module)._compiled_call, name)(*args, **kwargs)


def _restore_module(
    kind,
    state: dict,
    whole: bool,
    memory_budget: float | None,
    recompile_limit: float | None = None,
    replay: bool = False,
):
    module = kind.__new__(kind)
    module.__dict__.update(state)
    return compile_module(module, whole, memory_budget, recompile_limit, replay=replay)
