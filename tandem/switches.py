"""Switches for looking inside and for bisecting: `TANDEM_<NAME>` in the environment, or `with td.switches(NAME=...)`.

The environment is read once, at import. A scope changes a switch for the whole process, all threads, until it is left.
0 always means off. What changes results is an argument somewhere, never a switch.
"""

import os

__all__ = ["SWITCHES", "Switch", "switches"]

SWITCHES: dict[str, "Switch"] = {}


class Switch:
    """One setting, of the type of its default: an int, or a text that may be a comma-separated list of names.

    `DEBUG >= 2`, `if CHECK`, `"simplify" in SKIP`; `.value` is the setting itself.
    """

    __slots__ = ("default", "help", "name", "value")

    def __init__(self, name: str, default: int | str, help: str):
        self.name = name
        self.default = default
        self.help = help
        text = os.environ.get(self.variable)
        self.value = default if text is None else self.parse(text)
        SWITCHES[name] = self

    @property
    def variable(self) -> str:
        return "TANDEM_" + self.name

    def parse(self, given: int | str) -> int | str:
        if isinstance(self.default, str):
            text = str(given).strip()
            return "" if text == "0" else text
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
        self._before: list[dict[Switch, int | str]] = []  # a stack, so that one object can be entered twice

    def __enter__(self):
        self._before.append({switch: switch.value for switch in self._settings})
        for switch, value in self._settings.items():
            switch.value = value
        return self

    def __exit__(self, *_):
        for switch, value in self._before.pop().items():
            switch.value = value


DEBUG = Switch(
    "DEBUG", 0, "1 devices, 2 kernels and times, 3 graphs, 4 generated code; each level shows the lower ones too"
)
PRINT = Switch("PRINT", "", "passes to print the graph after, comma-separated, or 'all'")
SKIP = Switch("SKIP", "", "passes to leave out, comma-separated, or 'all'")
CHECK = Switch("CHECK", 1, "verify the graph after every pass; 2 asks the rules of operators too")
EAGER = Switch("EAGER", 0, "run compiled functions eagerly, line by line")
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
NUM_THREADS = Switch("NUM_THREADS", 0, "threads of a kernel; by default as many as affinity and cgroup quota allow")
ISA = Switch(
    "ISA", "", "'baseline' or 'avx2': library routines use no better instructions than these; read at first use"
)
WINOGRAD = Switch(
    "WINOGRAD",
    1,
    "convolutions of 3 x 3 over many channels by Winograd's method; 0: summed directly; read at first use",
)
TUNE = Switch(
    "TUNE", 0, "matrix products on devices by the fastest algorithm, found by trying each once; read at first use"
)
AHEAD = Switch(
    "AHEAD", 1, "devices begin with a recorded program while its calls are still being noted; read at first use"
)
LAUNCHER = Switch(
    "LAUNCHER",
    "",
    "rows of eager kernels are launched on devices by a thread of their own: 0 never, 1 also where a process may use less than "
    "four processors; read at first use",
)
EARLY = Switch("EARLY", 1, "eager kernels are set up on devices while earlier ones run; read at first use")
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
