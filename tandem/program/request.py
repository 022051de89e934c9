"""Request: a graph that is to become a program, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tandem.codegen import Layout
from tandem.graph.ir import Graph, Value

# Plain classes: dataclasses would take as long to import as all that a first call compiles with.


class Source:
    """A graph with where its inputs come from.

    layouts: per input
    positions: which argument of the program each input is
    on_host: of a program for a device: inputs in host memory
    saved: besides the outputs: what backward keeps
    writes: so many of the first outputs lie in the memory of the first inputs, and nowhere else
    devices: of a graph over several devices: where inputs are, None for numbers
    details: what else the request's `write` looks at, as plain values: programs that differ in it are told apart
    """

    def __init__(self, graph: Graph, layouts: list[Layout | None], positions: Sequence[int],
                 on_host: set[Value] | None = None, saved: Sequence[Value] = (), writes: int = 0,
                 devices: list[str | None] | None = None, details: tuple = ()):  # fmt: skip
        self.graph = graph
        self.layouts = layouts
        self.positions = positions
        self.on_host = set() if on_host is None else on_host
        self.saved = saved
        self.writes = writes
        self.devices = devices
        self.details = details


class Options(NamedTuple):
    """How a program is made."""

    whole: bool = False  # passes, epilogues, replay: for many operators; a single one is too small for them to pay
    exact_views: bool = (
        False  # an output that rearranges an input is a view where strides allow, as it may be written to
    )
    own_results: int | None = None  # results get memory of their own; so many of the last are no views either
    memory_budget: float | None = None
    fresh: bool = False  # not from disk
    captured: bool = False  # one of many calls that will be lowered together
    unfused_on_failure: bool = True  # where our compiler fails: every operator by itself


class Size(NamedTuple):
    """How much there is to compile, as far as it is known before the graph is."""

    calls: int
    kinds: int  # of calls: different operators, types or layouts

    @property
    def is_large(self) -> bool:
        """Whether there will be kernels enough to compile them beside (Note [Compile workers])."""
        return self.calls >= 60 and self.kinds >= 20


class Request:
    """What td.compile, sessions and all others hand to the driver.

    build: makes the graph; not called where the program is found on disk.
    write: (source, schedule, recorder) -> facts: the instructions of a program, as its caller lays out arguments and results.
    device: where it runs; of a program over several devices, where results are that could be anywhere.
    spec: descriptions of the arguments, which a program from disk must accept.
    size: None: counted from the graph.
    key: tells what is asked for from everything else; None: a whole program goes by its graph. "": not kept on disk.
    origin, number: where a node comes from by a number that is the same in another process, and the way back.
    devices: all that it runs on, where there are several.
    """

    def __init__(self, name: str, build: Callable[[], Source], device: int, write: Callable, spec: list,
                 options: Options, size: Size | None = None, key: str | None = None, origin: Callable | None = None,
                 number: Callable | None = None, devices: tuple[int, ...] = ()):  # fmt: skip
        self.name = name
        self.build = build
        self.device = device
        self.write = write
        self.spec = spec
        self.options = options
        self.size = size
        self.key = key
        self.origin = origin
        self.number = number
        self.devices = devices

    @property
    def all_devices(self) -> tuple[int, ...]:
        return self.devices or (self.device,)
