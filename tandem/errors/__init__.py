"""Exceptions: each names the op, what is wrong, how to fix it, and the line of the user's program.

    Exception
      TandemError                            the caller can fix it
        ShapeError        (ValueError, RuntimeError)  sizes or ranks that do not fit
        DTypeError        (TypeError, RuntimeError)  an element type, or a Python type, that is not accepted
        IndexRangeError   (IndexError, RuntimeError)  an index outside its axis
        IndexTypeError    (TypeError, IndexError, RuntimeError)  what is no index
        AxisError         (both of the above)  an axis that a tensor does not have
        ValueRangeError   (ValueError, RuntimeError)  an argument outside what it may be
        DeviceError       (RuntimeError)     a device that is not there, or operands on different devices
        AutogradError     (RuntimeError)     a gradient that cannot be had: freed, mutated, not asked for
        OutOfMemoryError  (MemoryError, RuntimeError)  an allocation that failed, with the largest live tensors
        LinAlgError       (ValueError, RuntimeError)  a matrix that has no inverse, no factors, no converging iteration
        DivisionError     (ZeroDivisionError, RuntimeError)  an integer divided by zero
        UnsupportedError  (NotImplementedError)  meaningful, but not offered
        QueueClosedError  (EOFError)         a queue that is closed
        CancelledError    (RuntimeError)     waited, and was told to stop
        DeadlineError     (TimeoutError)     waited longer than allowed
        CheckpointError   (RuntimeError)     a file that is damaged, or holds other things than are asked for
        WorkerError       (RuntimeError)     a process of a data loader that died or failed
        DistributedError  (RuntimeError)     a rank that died, left or does something else than the others
        NoProcessGroupError  (ValueError, RuntimeError)  a collective without a process group
        TaskError         (RuntimeError)     a task of a cluster that died or cannot be reached
        ShardingError     (ValueError, RuntimeError)  sharded tensors whose placements leave more than one way to go on
    RuntimeWarning, UserWarning
      CompileWarning                         a program that could not be compiled and runs in another way
      RecompileWarning                       a compiled function that is compiled again and again
      SwitchWarning                          a switch that says something without a meaning
    RuntimeError
      InternalError                          a bug of Tandem, with what to report

Python's own class comes first and PyTorch's, which is a RuntimeError for nearly everything, second: `except` clauses of both
kinds of programs catch them.

Raise with the op (an Op or its name, or None), the rule that is broken, and if there is one, the fix:

    raise ShapeError(self, f"a is {a.shape} and b is {b.shape}; ...", fix="pass b.T")

The user's line is looked up when the exception is made, never before.
"""

import contextlib
import os
import sys
import warnings
from types import TracebackType
from typing import NamedTuple

from tandem.errors import module_calls
from tandem.errors.readers import attach
from tandem.switches import TRACEBACK

__all__ = [
    "AutogradError",
    "AxisError",
    "CancelledError",
    "CheckpointError",
    "CompileWarning",
    "DTypeError",
    "DeadlineError",
    "DeviceError",
    "DistributedError",
    "DivisionError",
    "IndexRangeError",
    "IndexTypeError",
    "IntegerRangeError",
    "InternalError",
    "LinAlgError",
    "OutOfMemoryError",
    "QueueClosedError",
    "RecompileWarning",
    "ShapeError",
    "ShardingError",
    "Source",
    "SwitchWarning",
    "TandemError",
    "TaskError",
    "UnsupportedError",
    "ValueRangeError",
    "WorkerError",
    "from_runtime",
    "hide_frames",
    "install_hook",
    "user_source",
    "warn",
]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Frames of these stand between a user's call and ours when a function is decorated or imported, or begin a thread; they explain
# nothing.
_IMPORT = "<frozen importlib"
_PLUMBING = tuple(os.sep + name for name in ("contextlib.py", "functools.py", "threading.py"))


class Source(NamedTuple):
    """A place in the user's program."""

    file: str
    line: int
    function: str

    @property
    def short(self) -> str:
        """File name and line, as graphs and tables print it: `train.py:7`."""
        return f"{os.path.basename(self.file)}:{self.line}"

    def __str__(self) -> str:
        file = self.file
        with contextlib.suppress(OSError):  # the working directory was removed
            file = file.removeprefix(os.getcwd() + os.sep)
        return f"{file}:{self.line}" + ("" if self.function == "<module>" else f" in {self.function}")


def _is_user(code) -> bool:
    file = code.co_filename
    return not (file.startswith((_PACKAGE, _IMPORT)) or file.endswith(_PLUMBING))


def source_at(code, line: int) -> Source:
    return Source(code.co_filename, line, code.co_qualname.rpartition("<locals>.")[2])


def user_source() -> Source | None:
    """The innermost line of the running program that is not Tandem's own; None in a thread that is all ours."""
    frame = _user_frame()
    return None if frame is None else source_at(frame.f_code, frame.f_lineno)


def _user_frame():
    frame = sys._getframe(1)
    while frame is not None and not _is_user(frame.f_code):
        frame = frame.f_back
    return frame


def warn(message: str, category: type[Warning]):
    """Warns at the user's line, which is where Python says that a warning comes from."""
    frame, level = sys._getframe(1), 2
    while frame is not None and not _is_user(frame.f_code):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class _Located:
    """What both families share: fields, and the text made from them."""

    module: str | None = None  # path of the module it arose in, such as Net.layers.2
    layer: str | None = None  # that module as text

    def __init__(self, op, message: str, fix: str | None = None, source: Source | None = None):
        self.op: str | None = getattr(op, "name", op)
        self.rule = message
        self.fix = fix
        self.source = user_source() if source is None else source
        super().__init__(self._text())
        attach(TandemError, _is_user, hide_frames, _hides)

    def _text(self) -> str:
        text = self.rule if self.op is None else f"{self.op}: {self.rule}"
        if self.module is not None:
            text = f"{self.module}: {text}"
        if self.layer is not None:
            text += f"\n  in {self.layer}"
        if self.fix is not None:
            text += f"\n  fix: {self.fix}"
        if self.source is not None:
            text += f"\n  at {self.source}"
        return text

    def place(self, module: str | None, layer: str | None):
        """Has the text say in which module it happened."""
        self.module, self.layer = module, layer
        self.args = (self._text(),)

    def __reduce__(self):
        # By name, not by constructor arguments: an error crosses to another process as it was, with its line.
        fields = type(self).__qualname__, self.op, self.rule, self.fix, self.source, self.module, self.layer
        return _rebuild, fields


def _rebuild(name, op, rule, fix, source, module, layer):
    error = globals()[name](op, rule, fix, source)
    if layer is not None:
        error.place(module, layer)
    return error


class TandemError(_Located, Exception):
    """Base of all errors that the caller can fix."""


class ShapeError(TandemError, ValueError, RuntimeError):
    """Sizes or ranks that do not fit."""


class DTypeError(TandemError, TypeError, RuntimeError):
    """An element type, or a Python type, that is not accepted here."""


class IndexRangeError(TandemError, IndexError, RuntimeError):
    """An index outside its axis."""


class IndexTypeError(DTypeError, IndexRangeError):
    """What is no index: a float, a tensor of floats. A TypeError as in Python, and an IndexError as in NumPy and PyTorch."""


class AxisError(ShapeError, IndexRangeError):
    """An axis that the tensor does not have. A ValueError and an IndexError, as NumPy's."""


class ValueRangeError(TandemError, ValueError, RuntimeError):
    """An argument outside what it may be."""


class IntegerRangeError(ValueRangeError, OverflowError):
    """A Python integer that the dtype it meets cannot hold."""


class DeviceError(TandemError, RuntimeError):
    """A device that is not there, or operands on different devices."""


class AutogradError(TandemError, RuntimeError):
    """A gradient that cannot be had: its inputs were freed or mutated, or it was never asked for."""


class OutOfMemoryError(TandemError, MemoryError, RuntimeError):
    """An allocation that failed."""


class LinAlgError(TandemError, ValueError, RuntimeError):
    """A matrix that does not have what was asked for: an inverse, a Cholesky factor.

    A ValueError as in NumPy, and a RuntimeError as in PyTorch.
    """


class DivisionError(TandemError, ZeroDivisionError, RuntimeError):
    """An integer that is divided by zero. A ZeroDivisionError as in Python, and a RuntimeError as in PyTorch."""


class UnsupportedError(TandemError, NotImplementedError):
    """Something meaningful that Tandem does not offer."""


class CheckpointError(TandemError, RuntimeError):
    """A file that is damaged, or that holds other things than are asked for."""


class WorkerError(TandemError, RuntimeError):
    """A process of a data loader that died or failed."""


class DistributedError(TandemError, RuntimeError):
    """Ranks that cannot go on together: one died, left, or does something else than the others."""


class NoProcessGroupError(DistributedError, ValueError):
    """A collective, or a question about ranks, in a program that has no process group."""


class TaskError(DistributedError):
    """A task of a cluster that died, or that cannot be reached. `task` is its name."""

    task: str | None = None


class ShardingError(TandemError, ValueError, RuntimeError):
    """Sharded tensors whose placements do not fit together, or leave a choice that is the caller's."""


class QueueClosedError(TandemError, EOFError):
    """A queue that is closed: nothing more goes in, or what is left does not suffice."""


class CancelledError(TandemError, RuntimeError):
    """Something that waited and was told to stop: its session was closed."""


class DeadlineError(TandemError, TimeoutError):
    """Something that waited longer than it was allowed to."""


class CompileWarning(RuntimeWarning):
    """A program could not be compiled, by a mistake of ours, and runs in another way with the same results."""


class RecompileWarning(UserWarning):
    """A compiled function meets calls again and again that none of its programs serves."""


class SwitchWarning(UserWarning):
    """A switch says something that means nothing."""


class InternalError(_Located, RuntimeError):
    """A bug of Tandem, not of its caller."""

    def _text(self) -> str:
        from importlib.metadata import PackageNotFoundError, version

        try:
            release = version("tandem-dl")
        except PackageNotFoundError:  # run from a source tree that was never installed
            release = "source"
        python = ".".join(map(str, sys.version_info[:3]))
        report = f"this is a bug in Tandem: please report this text (tandem {release}, Python {python}, {sys.platform})"
        return f"{super()._text()}\n  {report}"


for _name in __all__:
    if _name.endswith("Error"):
        globals()[_name].__module__ = "tandem"  # tracebacks name them as users write them: tandem.ShapeError

# The kinds of src/check.h.
_KINDS = {
    "Internal": InternalError,
    "Shape": ShapeError,
    "Type": DTypeError,
    "Index": IndexRangeError,
    "Value": ValueRangeError,
    "Memory": OutOfMemoryError,
    "Autograd": AutogradError,
    "LinAlg": LinAlgError,
    "Device": DeviceError,
    "Unsupported": UnsupportedError,
    "Distributed": DistributedError,
    "Deadline": DeadlineError,
    "Division": DivisionError,
}


# What users write where an operator of our own does the work.
_SHOWN = {"gather_at": "getitem", "index_basic": "getitem", "scatter_at": "setitem", "scatter_at_": "setitem"}


def from_runtime(
    kind: str, message: str, fix: str | None = None, op: str | None = None, source=None, place: tuple | None = None
) -> Exception:
    """The exception for an error of the C++ runtime. A message may start with the name of its op: `matmul: ...`.

    source: (file, line, function) where it is not the line that runs now, as in a compiled program.
    place: in which module it arose, where that is not one that runs now (tandem/errors/module_calls.py)
    """
    error = _made(kind, message, fix, op, source)
    if place is not None:
        module_calls.place(error, place)
    return error


def _made(kind: str, message: str, fix: str | None, op: str | None, source) -> Exception:
    op = _SHOWN.get(op, op)
    if message.startswith("a value is read in the middle of a function"):
        from tandem.errors.reading import fix_at

        fix = fix_at(_user_frame())
    if source is not None:
        return _KINDS[kind](op, message, fix, Source(*source))
    name, separator, rest = message.partition(": ")
    if op is None and separator and name.isidentifier():
        return _KINDS[kind](name, rest, fix)
    return _KINDS[kind](op, message, fix)


def hide_frames(error: BaseException) -> BaseException:
    """Take Tandem's own frames out of the traceback of a TandemError, so that it ends at the user's line.

    Other exceptions, and all of them under TANDEM_TRACEBACK=full, stay as they are. Returns the error, for `raise`.
    """
    if not isinstance(error, TandemError) or not _hides():
        return error
    frames = []
    entry = error.__traceback__
    while entry is not None:
        frames.append(entry)
        entry = entry.tb_next
    kept = [entry for entry in frames if _is_user(entry.tb_frame.f_code)]
    if len(kept) < len(frames):
        chain = None
        for entry in reversed(kept):
            chain = TracebackType(chain, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
        error.__traceback__ = chain
        if _HIDDEN not in getattr(error, "__notes__", ()):
            error.add_note(_HIDDEN)
    return error


def _hides() -> bool:
    return TRACEBACK.value != "full"


_HIDDEN = "  (Tandem's own frames are left out; TANDEM_TRACEBACK=full shows them)"


def install_hook() -> None:
    """Have uncaught errors printed without Tandem's frames; other exceptions reach the hook that was there before."""
    before = sys.excepthook
    if getattr(before, "_hides_tandem", False):
        return

    def hook(kind, error, traceback):
        if isinstance(error, TandemError):
            traceback = hide_frames(error).__traceback__
        before(kind, error, traceback)

    hook._hides_tandem = True
    sys.excepthook = hook
