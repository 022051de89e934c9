"""td.cuda: NVIDIA devices, their streams, events and memory.

Work on a device is queued: Python runs ahead, and waits only where a value is read, or in synchronize. Nothing of CUDA is opened,
and no device is touched, until the first tensor is put there.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from tandem import _runtime
from tandem.aliases import from_above
from tandem.devices import Device, code_of
from tandem.errors import DeviceError, OutOfMemoryError

__all__ = [
    "Event",
    "OutOfMemoryError",
    "Stream",
    "allow_tf32",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "expandable_segments",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "info",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "profile",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_allow_tf32",
    "set_device",
    "set_expandable_segments",
    "set_memory_fraction",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]

_current = 0  # what "cuda" without a number means to the functions here


def _index(device) -> int:
    return _current if device is None else code_of(device) - 1


def is_available() -> bool:
    """Whether tensors can be put on "cuda"."""
    return _runtime.cuda_unavailable() == ""


def device_count() -> int:
    return _runtime.cuda_device_count()


def current_device() -> int:
    return _current


def set_device(device) -> None:
    """Which device the functions of td.cuda mean when none is given."""
    global _current
    _current = code_of(device) - 1


def device(index) -> Device:
    """cuda:index as a context in which new tensors are made there."""
    return Device("cuda", index if isinstance(index, int) else code_of(index) - 1)


def get_device_name(device=None) -> str:
    return get_device_properties(device).name


def get_device_capability(device=None) -> tuple[int, int]:
    """Compute capability, such as (9, 0)."""
    found = get_device_properties(device)
    return found.major, found.minor


class DeviceProperties(NamedTuple):
    """What a device is."""

    name: str
    major: int  # of the compute capability
    minor: int
    multi_processor_count: int
    total_memory: int  # bytes


def get_device_properties(device=None) -> DeviceProperties:
    """Name, compute capability, number of multiprocessors and memory of a device."""
    return DeviceProperties(*_runtime.cuda_properties(_index(device)))


def get_arch_list() -> list[str]:
    """The architectures that kernels are compiled for: those of the devices that are there, since they are compiled when needed."""
    return (
        sorted({"sm_{}{}".format(*get_device_capability(i)) for i in range(device_count())}) if is_available() else []
    )


def device_of(obj):
    """The device of a tensor as a context in which new tensors are made there; of one on the CPU, one that changes nothing."""
    on_device = getattr(obj, "device", None)
    on_device = on_device if on_device is not None and on_device.type == "cuda" else None
    return contextlib.nullcontext() if on_device is None else device(on_device)


def synchronize(device=None) -> None:
    """Waits until everything queued on a device is done; errors that kernels found are raised here."""
    _runtime.cuda_synchronize(_index(device))


# -- streams and events


class Stream:
    """A queue of work on a device. Work on different streams may overlap; wait_stream and events put it in order.

    Tensors belong to the stream that was current when they were made. Use them on another one only after it waits for that, and
    tell so with x.record_stream(stream) if the tensor may be dropped before.
    """

    def __init__(self, device=None, priority: int = 0, *, _handle: int | None = None):
        self.device_index = _index(device)
        self._owned = None if _handle is not None else _runtime.CudaStream(self.device_index, priority)
        self._handle = _handle if _handle is not None else self._owned.handle

    @property
    def handle(self) -> int:
        """The driver's handle, for other libraries; from now on every launch goes to the driver at once."""
        _runtime.cuda_share_streams()
        return self._handle

    def synchronize(self) -> None:
        """Waits until everything queued here is done."""
        _runtime.cuda_synchronize_stream(self.device_index, self._handle)

    def query(self) -> bool:
        """Whether everything queued here is done."""
        return _runtime.cuda_stream_done(self._handle)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """What is queued here from now on runs after the event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """What is queued here from now on runs after everything queued on the other stream so far."""
        self.wait_event(stream.record_event())

    def __eq__(self, other):
        return isinstance(other, Stream) and (self._handle, self.device_index) == (other._handle, other.device_index)

    def __hash__(self):
        return hash((self._handle, self.device_index))

    def __repr__(self):
        return f"<td.cuda.Stream {self._handle:#x} on cuda:{self.device_index}>"


class Event:
    """A point in a stream: to wait for, or to measure the time between two."""

    def __init__(self, enable_timing: bool = False, device=None):
        self._event = _runtime.CudaEvent(_index(device), enable_timing)

    def record(self, stream: Stream | None = None) -> None:
        self._event.record((stream or current_stream())._handle)

    def wait(self, stream: Stream | None = None) -> None:
        self._event.wait((stream or current_stream())._handle)

    def query(self) -> bool:
        return self._event.done()

    def synchronize(self) -> None:
        self._event.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another; both were made with enable_timing=True."""
        return self._event.elapsed(end_event._event)


def current_stream(device=None) -> Stream:
    """The stream that this thread's work goes to."""
    index = _index(device)
    return Stream(index, _handle=_runtime.cuda_current_stream(index))


def default_stream(device=None) -> Stream:
    return Stream(_index(device), _handle=0)


@contextlib.contextmanager
def stream(stream: Stream | None):
    """This thread's work goes to another stream.

    >>> with td.cuda.stream(side):
    ...     y = x * 2
    """
    if stream is None:
        yield
        return
    before = _runtime.cuda_current_stream(stream.device_index)
    _runtime.cuda_set_stream(stream.device_index, stream._handle)
    try:
        yield stream
    finally:
        _runtime.cuda_set_stream(stream.device_index, before)


# -- memory


def memory_stats(device=None) -> dict[str, int]:
    """Counts of the device's caching allocator; the names are those of td.memory.stats."""
    return _runtime.cuda_memory_stats(_index(device))


def memory_allocated(device=None) -> int:
    return memory_stats(device)["live_bytes"]


def memory_reserved(device=None) -> int:
    return memory_stats(device)["reserved_bytes"]


def max_memory_allocated(device=None) -> int:
    return memory_stats(device)["peak_bytes"]


def max_memory_reserved(device=None) -> int:
    return memory_stats(device)["peak_reserved_bytes"]


def reset_peak_memory_stats(device=None) -> None:
    _runtime.cuda_reset_peak_memory(_index(device))


def mem_get_info(device=None) -> tuple[int, int]:
    """(free, total) bytes of the device."""
    return _runtime.cuda_memory_info(_index(device))


def memory_summary(device=None, abbreviated: bool = False) -> str:
    """Counts of the device's caching allocator as a table."""
    stats = memory_stats(device)
    free, total = mem_get_info(device)
    lines = [f"cuda:{_index(device)}: {free / 2**20:.0f} MiB of {total / 2**20:.0f} MiB are free"]
    for name, value in stats.items():
        lines.append(f"{name:>24} {value / 2**20:12.1f} MiB" if name.endswith("bytes") else f"{name:>24} {value:12}")
    return "\n".join(lines)


def empty_cache(device=None) -> None:
    """Gives memory that no tensor uses back to the device; without one there is nothing to give back."""
    if device is not None or is_available():
        _runtime.cuda_empty_cache(_index(device))


def set_memory_fraction(fraction: float, device=None) -> None:
    """How much of the device's memory this process may reserve."""
    _runtime.cuda_set_memory_fraction(_index(device), fraction)


def set_expandable_segments(on: bool, device=None) -> None:
    """Whether large blocks come from ranges of addresses that grow in place, so that freed memory of any sizes can be joined. An
    error on devices without virtual memory management. Memory that was reserved before stays as it is."""
    _runtime.cuda_set_expandable_segments(_index(device), on)


def expandable_segments(device=None) -> bool:
    return _runtime.cuda_expandable_segments(_index(device))


# -- where time goes


class profile:
    """Times every kernel and library call on devices inside the scope; print it for a table of the most expensive ones.

    td.profile tells more: operators, lines, a timeline. Programs run step by step rather than as graphs.

    >>> with td.cuda.profile() as p:
    ...     step()
    >>> print(p)
    """

    def __init__(self):
        self.rows: list[tuple[str, int, float]] = []  # (step, how often, milliseconds in all), the most expensive first

    def __enter__(self):
        from tandem.profiler import profile

        self._whole = profile()
        self._whole.__enter__()
        return self

    def __exit__(self, *exc):
        self._whole.__exit__(*exc)
        rows = self._whole.rows("kernel")
        self.rows = [(row.name, row.steps, row.nanoseconds / 1e6) for row in rows if row.device != "cpu"]

    def __str__(self):
        total = sum(row[2] for row in self.rows)
        lines = [f"{total:10.3f} ms in {sum(row[1] for row in self.rows)} steps"]
        lines += [
            f"{ms:10.3f} ms {100 * ms / max(total, 1e-9):5.1f}% {count:6} x {name}"
            for name, count, ms in self.rows[:40]
        ]
        return "\n".join(lines)


# -- what PyTorch programs say here


def manual_seed(seed: int) -> None:
    """td.manual_seed: random numbers do not depend on the device."""
    from tandem.random import manual_seed

    manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """td.manual_seed: random numbers do not depend on the device."""
    manual_seed(seed)


def get_rng_state(device=None):
    """td.get_rng_state: random numbers do not depend on the device, but it must be there."""
    from tandem.random import get_rng_state

    _runtime.cuda_properties(_index(device))
    return get_rng_state()


def set_rng_state(new_state, device=None) -> None:
    """td.set_rng_state, for a device that must be there."""
    from tandem.random import set_rng_state

    _runtime.cuda_properties(_index(device))
    set_rng_state(new_state)


def get_rng_state_all() -> list:
    """One state for every device: of none, an empty list."""
    return [get_rng_state(i) for i in range(device_count())] if is_available() else []


def set_rng_state_all(new_states) -> None:
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


set_per_process_memory_fraction = set_memory_fraction


def seed() -> None:
    """td.seed: random numbers do not depend on the device."""
    from tandem.random import seed

    seed()


seed_all = seed


def initial_seed() -> int:
    """td.initial_seed: random numbers do not depend on the device."""
    from tandem.random import initial_seed

    return initial_seed()


def init() -> None:
    """Opens the driver, which happens by itself when it is needed; an error that says why if there is no device."""
    _runtime.cuda_properties(0)


def set_stream(stream: Stream) -> None:
    """This thread's work goes to another stream from now on; td.cuda.stream does so for a scope."""
    _runtime.cuda_set_stream(stream.device_index, stream._handle)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether there is a device for bfloat16; without emulation, whether its products run on tensor cores."""
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


__getattr__ = from_above(__name__)


# -- precision


def set_allow_tf32(allow: bool) -> None:
    """Whether float32 products and convolutions may use TensorFloat-32: some eight times faster, with 10 bits of fraction
    instead of 23. Off unless asked for."""
    _runtime.cuda_set_allow_tf32(allow)


def allow_tf32() -> bool:
    return _runtime.cuda_allow_tf32()


def info() -> str:
    """What there is: driver, devices, libraries; or what is missing."""
    from tandem.codegen.cuda.libraries import find

    problem = _runtime.cuda_unavailable()
    lines = [f"CUDA: {problem}"] if problem else []
    if not problem:
        version = _runtime.cuda_driver_version()
        lines.append(f"CUDA driver: supports {version // 1000}.{version % 1000 // 10}")
        for i in range(device_count()):
            name, major, minor, processors, memory = _runtime.cuda_properties(i)
            lines.append(
                f"cuda:{i}: {name}, compute capability {major}.{minor}, {processors} multiprocessors, {memory / 2**30:.1f} GiB"
            )
    try:
        from tandem.codegen.cuda.nvrtc import version as nvrtc_version

        lines.append("NVRTC: " + ".".join(map(str, nvrtc_version())))
    except DeviceError as error:
        lines.append("NVRTC: " + str(error).splitlines()[0])
    lines += [f"{name}: {find(name) or 'not found'}" for name in ("cublasLt", "cudnn", "cusolver", "cufft")]
    return "\n".join(lines)
