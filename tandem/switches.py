"""Switches for looking inside and for bisecting: `TANDEM_<NAME>` in the environment, or `with td.switches(NAME=...)`.

The environment is read once, at import. A scope changes a switch for the whole process, all threads, until it is left; where
several threads are in scopes, the last one that was entered holds. 0 always means off.

What changes results is an argument somewhere, never a switch.
"""

import os
from collections.abc import Callable

from tandem import _runtime, forks

__all__ = ["SWITCHES", "Switch", "switches"]

SWITCHES: dict[str, "Switch"] = {}

_lock = forks.lock()  # guards the scopes of all switches


class Switch:
    """One setting, of the type of its default: an int, or a text that may be a comma-separated list of names.

    `DEBUG >= 2`, `if CHECK`, `"simplify" in SKIP`; `.value` is the setting itself. `native` makes it the number that the runtime
    works with (src/switches.h).
    """

    __slots__ = ("default", "help", "name", "native", "scopes", "value")

    def __init__(self, name: str, default: int | str, help: str, native: Callable[[int | str], int] | None = None):
        self.name = name
        self.default = default
        self.help = help
        self.native = native
        self.scopes: list[list] = []  # those that are not left, in order, each with the setting that it found
        text = os.environ.get(self.variable)
        self.set(default if text is None else self.parse(text))
        SWITCHES[name] = self

    def set(self, value: int | str) -> None:
        if self.native is not None:
            _runtime.set_switch(self.name, self.native(value))
        self.value = value

    def current(self):
        """What restore() takes."""
        return self.value

    def restore(self, current):
        self.set(current)

    def begin(self, value: int | str) -> list:
        """Begins a scope."""
        scope = [self.current()]
        self.set(value)
        self.scopes.append(scope)
        return scope

    def end(self, scope: list):
        """Ends a scope. Another thread may have begun one within it, which then leaves what this one found."""
        i = next(i for i, s in enumerate(self.scopes) if s is scope)
        if i + 1 == len(self.scopes):
            self.restore(scope[0])
        else:
            self.scopes[i + 1][0] = scope[0]
        del self.scopes[i]

    @property
    def variable(self) -> str:
        return "TANDEM_" + self.name

    def parse(self, given: int | str) -> int | str:
        if isinstance(self.default, str):
            text = str(given).strip()
            text = "" if text == "0" else text
            if self.native is not None:
                self.native(text)  # raises for what it does not know
            return text
        try:
            return int(given)
        except ValueError:
            raise ValueError(f"{self.variable} is {given!r}; it must be an integer\n  fix: 0 means off") from None

    def __bool__(self) -> bool:
        return bool(self.value)

    def __ge__(self, level: int) -> bool:
        return self.value >= level

    def __contains__(self, name: str) -> bool:
        """Whether a list of names holds this one. "all" holds every name."""
        names = [part.strip() for part in self.value.split(",")]
        return name in names or "all" in names

    def __repr__(self) -> str:
        return f"{self.variable}={self.value}"


class switches:
    """Set switches in a scope; names in capitals or not.

    >>> step = td.compile(lambda x: -(-x))
    >>> with td.switches(PRINT="simplify", eager=1):
    ...     step(td.ones(2))
    tensor([1., 1.])
    """

    def __init__(self, **settings: int | str):
        for name in settings:
            if name.upper() not in SWITCHES:
                raise ValueError(f"there is no switch {name!r}\n  fix: one of {', '.join(SWITCHES)}")
        found = ((SWITCHES[name.upper()], value) for name, value in settings.items())
        self._settings = {switch: switch.parse(value) for switch, value in found}
        self._inside: list[list] = []  # a stack, so that one object can be entered twice

    def __enter__(self):
        with _lock:
            self._inside.append([(switch, switch.begin(value)) for switch, value in self._settings.items()])
        return self

    def __exit__(self, *_):
        with _lock:
            for switch, scope in self._inside.pop():
                switch.end(scope)


class _Threads(Switch):
    """The number of threads is not the switch's alone: td.set_num_threads changes it too."""

    __slots__ = ()

    def set(self, value: int | str) -> None:
        if value or hasattr(self, "value"):  # at import, 0 leaves it to OMP_NUM_THREADS and the machine
            _runtime.set_num_threads(max(int(value), 0))
        self.value = value

    def current(self):
        return self.value, _runtime.num_threads()

    def restore(self, current):
        self.set(current[0])
        _runtime.set_num_threads(current[1])


def _isa(text: str) -> int:
    known = {"": 0, "baseline": 1, "avx2": 2}
    if text not in known:
        raise ValueError(f"TANDEM_ISA is {text!r}\n  fix: 'baseline', 'avx2', or nothing for the best there is")
    return known[text]


def _launcher(text: str) -> int:
    return -1 if text == "auto" else int(bool(text))


DEBUG = Switch(
    "DEBUG", 0, "1 devices, 2 kernels and times, 3 graphs, 4 generated code; each level shows the lower ones too"
)
PRINT = Switch("PRINT", "", "passes to print the graph after, comma-separated, or 'all'")
SKIP = Switch("SKIP", "", "passes to leave out, comma-separated, or 'all'")
CHECK = Switch("CHECK", 1, "verify graphs after the passes; 2 after each, with rules and types of operators")
EAGER = Switch("EAGER", 0, "run compiled functions eagerly, line by line")
RECOMPILE_LIMIT = Switch(
    "RECOMPILE_LIMIT",
    8,
    "how often a compiled function is compiled again from one line on before it runs eagerly; 0: no limit",
)
TRACEBACK = Switch("TRACEBACK", "", "'full' keeps Tandem's own frames in tracebacks")
CACHE = Switch("CACHE", 1, "keep generated kernels on disk")
CACHE_DIR = Switch("CACHE_DIR", "", "where; by default `tandem` under `$XDG_CACHE_HOME` or `~/.cache`")
CACHE_MB = Switch("CACHE_MB", 512, "largest size of what is kept; the least recently used goes first")
PREBUILT = Switch(
    "PREBUILT",
    "package",
    "folder of the kernels that were compiled when Tandem was built, by default the package's own; 0: compile them here",
)
COMPILE_WORKERS = Switch(
    "COMPILE_WORKERS",
    3,
    "processes that help to compile a large program, at most, and five times as many for a program on a CUDA device; "
    "0 compiles all of it in this one",
)
NUM_THREADS = _Threads("NUM_THREADS", 0, "threads of a kernel; by default as many as affinity and cgroup quota allow")
ISA = Switch("ISA", "", "'baseline' or 'avx2': library routines use no better instructions than these", native=_isa)
WINOGRAD = Switch(
    "WINOGRAD",
    1,
    "convolutions of 3 x 3 over many channels by Winograd's method, as exact as direct sums; 2: in larger blocks, quicker and less "
    "exact; 0: summed directly",
    native=int,
)
TUNE = Switch(
    "TUNE",
    0,
    "matrix products on devices by the fastest algorithm, found by trying each once; on the CPU, convolutions whose way was not "
    "measured on this machine are, whatever time that takes",
    native=int,
)
AHEAD = Switch("AHEAD", 1, "devices begin with a recorded program while its calls are still being captured", native=int)
LAUNCHER = Switch(
    "LAUNCHER",
    "auto",
    "rows of eager kernels are launched on devices by a thread of their own: 0 never, 1 always, auto where a process may use at "
    "least four processors",
    native=_launcher,
)
EARLY = Switch("EARLY", 1, "eager kernels are set up on devices while earlier ones run", native=int)
ORDER = Switch(
    "ORDER",
    2,
    "ranks whose lines tell that they call equal collectives in different orders: 0 nothing, 1 a warning, 2 an error",
    native=int,
)
WGMMA = Switch(
    "WGMMA",
    1,
    "attention on devices of compute capability 9.0 by its own matrix instructions; 2: waiting for every copy",
)
CUSOLVER = Switch("CUSOLVER", 0, "factorisations on CUDA devices by cuSOLVER instead of through the host")


def cache_dir() -> str | None:
    """The folder for kernels on disk, which may not exist yet; None when they are not kept."""
    if not CACHE:
        return None
    if CACHE_DIR:
        return CACHE_DIR.value
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "tandem")
