"""Devices: where tensors live."""

from __future__ import annotations

import contextlib
import importlib
from threading import get_ident, local

from tandem import _runtime, forks
from tandem.errors import DeviceError

# What a device scope enters besides: functions of a device that give a context. Deferred graphs put theirs here.
scopes: list = []
_numbering = forks.lock()  # guards what numbers of tasks' devices are kept in
# Kinds that programs name; those of other libraries too, which none has here, so that they can ask for them.
_KINDS = ("cpu", "cuda", "hpu", "meta", "mps", "mtia", "xla", "xpu")


class Device:
    """A place for tensors, written "cpu", "cuda" or "cuda:1". Equal to its name. Whether it is there is asked when it is used.
    As a context, where new tensors are made and where nodes of a deferred graph are to run. `td.device` is this class.

    A name may say which process of a cluster has it: "/job:worker/task:3/device:cuda:0". Nodes of a deferred graph may be bound to
    such a device wherever they are built; tensors are made on devices of this process, job "localhost", alone. A function of a
    node that gives a name, or None, may stand for a name: it is asked for each node that a deferred graph gets inside.

    >>> with td.device("cpu"):
    ...     td.ones(2).device
    device('cpu')
    """

    __slots__ = ("_before", "index", "job", "task", "type")

    def __new__(cls, type=None, index: int | None = None):
        return _OfNodes(type) if callable(type) else super().__new__(cls)

    def __init__(self, type: str | int | Device, index: int | None = None):
        job = task = None
        if isinstance(type, Device):
            type, index, job, task = type.type, type.index, type.job, type.task
        elif isinstance(type, str):
            type, index, job, task = _parse(type if index is None else f"{type}:{index}")
        elif isinstance(type, int) and not isinstance(type, bool):
            type, index = "cuda", type
        else:
            raise DeviceError(None, f"{type!r} is no device; write 'cpu', 'cuda' or 'cuda:1'")
        self.type, self.index = type, index
        self.job, self.task = job, task
        self._before: dict[int, list] = {}  # by thread
        if isinstance(index, str) or type not in _KINDS or (type == "cpu" and self.is_local):
            code_of(Device._unchecked(type, index))  # says what is wrong with the name
        elif type == "cpu" and index:
            raise DeviceError(None, f"device {str(self)!r} is not available; a task has one 'cpu'")

    @classmethod
    def _unchecked(cls, type: str, index: int | None, job: str | None = None, task: int | None = None) -> Device:
        made = object.__new__(cls)
        made.type, made.index, made.job, made.task, made._before = type, index, job, task, {}
        return made

    @property
    def is_local(self) -> bool:
        """Whether it is this process's."""
        return self.job is None

    def __str__(self):
        name = self.type if self.index is None else f"{self.type}:{self.index}"
        return name if self.is_local else f"/job:{self.job}/task:{self.task or 0}/device:{name}"

    def __repr__(self):
        return f"device({str(self)!r})"

    def __eq__(self, other):
        if not isinstance(other, (Device, str)):
            return NotImplemented
        return canonical(self) == canonical(other)

    def __hash__(self):
        return hash(canonical(self))

    def __enter__(self):
        if self.is_local:
            code = 0 if self.type == "meta" else code_of(self)
            before = _runtime.set_default_device(code), _runtime.set_device_scope(code)
            if before[1] >= FIRST_TASK:  # a device without a job is one of the task around
                _runtime.set_device_scope(before[1])
        else:
            before = _runtime.default_device(), _runtime.set_device_scope(_code_of_task(self))
        with contextlib.ExitStack() as stack:
            for scope in scopes:
                stack.enter_context(scope(self))
            self._before.setdefault(get_ident(), []).append((before, meta.on, stack.pop_all()))
        meta.on = self.type == "meta"
        return self

    def __exit__(self, *exc):
        if not (entered := self._before.get(get_ident())):  # see _Scope in autograd/modes.py
            return
        before, meta.on, stack = entered.pop()
        if self.is_local:
            _runtime.set_default_device(before[0])
        _runtime.set_device_scope(before[1])
        stack.close()


class _OfNodes:
    """A scope in which a function says where each node of a deferred graph runs."""

    def __init__(self, function):
        self.function = function
        self._before: dict[int, list] = {}  # by thread

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            for scope in scopes:
                stack.enter_context(scope(self.function))
            self._before.setdefault(get_ident(), []).append(stack.pop_all())
        return self

    def __exit__(self, *exc):
        if entered := self._before.get(get_ident()):
            entered.pop().close()


def _parse(name: str) -> tuple[str, int | str | None, str | None, int | None]:
    """Type, index, job and task of a device's name, as in "cuda:1", "/device:CPU:0" or "/job:worker/task:3/device:cuda:0"."""
    job = task = None
    kind, index = "cpu", None
    for part in name.strip("/").split("/") if name.startswith("/") else [name]:
        key, _, value = part.partition(":")
        if key == "job" and value:
            job = value
        elif key in ("task", "replica") and value.isdigit():
            task = int(value) if key == "task" else task
        elif key in ("job", "task", "replica"):
            rule = f"device {name!r} has {part!r} in it, where a {'name' if key == 'job' else 'whole number'} must follow {key}:"
            raise DeviceError(None, rule, fix="write /job:worker/task:3, or /job:worker/task:3/device:cuda:0")
        else:
            kind, _, number = part.removeprefix("device:").lower().partition(":")
            kind = "cuda" if kind == "gpu" and name.startswith("/") else kind
            index = int(number) if number.isdigit() else number or None
    if task is not None and job is None:
        raise DeviceError(
            None, f"device {name!r} names a task and no job", fix=f"write the job, too: /job:worker/task:{task}"
        )
    return (kind, index, None, None) if job in (None, "localhost") else (kind, index, job, task or 0)


def canonical(device: Device | str) -> str:
    """The one name of a device that has several: "cpu" of "cpu:0", "cuda:0" of "cuda"."""
    head, slash, last = str(device).rpartition("device:")
    return head + slash + {"cpu:0": "cpu", "cuda": "cuda:0"}.get(last, last)


# Devices of other processes have numbers too, for scopes around calls that are captured: from this one on (src/modes.h).
FIRST_TASK = 64
_of_tasks: dict[str, int] = {}
_task_devices: list[Device] = []


def _code_of_task(device: Device) -> int:
    name = canonical(device)
    code = _of_tasks.get(name)
    if code is None:
        with _numbering:
            code = _of_tasks.setdefault(name, FIRST_TASK + len(_task_devices))
            if code == FIRST_TASK + len(_task_devices):
                _task_devices.append(named(name))
    return code


def device_of_scope(code: int) -> Device | None:
    """The device of another process that a captured call was made for, if it was."""
    return _task_devices[code - FIRST_TASK] if code >= FIRST_TASK else None


CPU = Device._unchecked("cpu", None)
DEVICES = [CPU] + [Device._unchecked("cuda", i) for i in range(15)]  # what Tensor.device gives, by the runtime's number


META = Device._unchecked("meta", None)  # tensors without memory: tandem/tracing/meta.py


class _Meta(local):
    on = False  # whether new tensors have no memory, unless they say where they are to be


meta = _Meta()


def is_meta(device) -> bool:
    """Whether a device is "meta"; None is where new tensors are made."""
    if device is None:
        return meta.on
    return device is META or (device.type if isinstance(device, Device) else str(device).partition(":")[0]) == "meta"


def of_meta():
    """The module of tensors without memory."""
    return importlib.import_module("tandem.tracing.meta")


def named(name: str) -> Device:
    """The device of this name, whether this machine has it or not."""
    return Device._unchecked(*_parse(name))


def known(device) -> Device:
    """The device for a Device or a name of a kind that there is, whether this machine has it or not."""
    found = named(device) if isinstance(device, str) else device
    if not isinstance(found, Device):
        return as_device(device)
    if found.type == "meta":
        return META
    if found.type not in ("cpu", "cuda") or isinstance(found.index, str):
        raise DeviceError(None, f"device {str(found)!r} is not known; known are 'cpu' and 'cuda', or 'cuda:1'")
    return found


def as_device(device) -> Device:
    """The device for a Device, a name or the number of a CUDA device; raises if it is not there."""
    return DEVICES[code_of(device)]


def code_of(device) -> int:
    """The runtime's number for a device: 0 for the CPU, k for cuda:(k - 1). Raises if the device is not there."""
    if device is None:
        return _runtime.default_device()
    if device is CPU:  # the usual one, without looking closer
        return 0
    if not isinstance(device, Device):
        if device == "cpu":
            return 0
        device = Device(device)
    kind, index = device.type, device.index
    if not device.is_local:
        raise DeviceError(
            None,
            f"device {str(device)!r} belongs to another process; this one is job 'localhost'",
            fix="name a device of this process, such as 'cpu' or 'cuda:0'",
        )
    if isinstance(index, str):
        raise DeviceError(None, f"device {str(device)!r} has no number; write 'cpu', 'cuda' or 'cuda:1'")
    if kind == "cpu":
        if index:
            raise DeviceError(None, f"device 'cpu:{index}' is not available; there is one 'cpu'")
        return 0
    if kind != "cuda":
        raise DeviceError(None, f"device {str(device)!r} is not known; known are 'cpu' and 'cuda'", _ADVICE.get(kind))
    problem = _runtime.cuda_unavailable()
    if problem:
        problem, _, fix = problem.partition("\n  fix: ")
        raise DeviceError(None, f"device {str(device)!r} is not available: {problem}", fix or _NO_DEVICE)
    index = index or 0
    count = _runtime.cuda_device_count()
    if index >= count:
        raise DeviceError(None, f"device 'cuda:{index}' is not available; this machine has {count} CUDA device(s)")
    return index + 1


_ADVICE = {"meta": "leave out device=: what is asked for needs memory"}
_NO_DEVICE = (
    'leave out device=, or choose by device="cuda" if td.cuda.is_available() else "cpu"; `tandem doctor` tells more'
)


def set_default_device(device) -> None:
    """Where tensors are made when no device is given; None means the CPU. `with td.device(...)` does it for a while.

    >>> td.set_default_device("cpu")
    """
    meta.on = device is not None and is_meta(device)
    _runtime.set_default_device(0 if device is None or meta.on else code_of(device))


def get_default_device() -> Device:
    """Where tensors are made when no device is given.

    >>> td.get_default_device()
    device('cpu')
    """
    return META if meta.on else DEVICES[_runtime.default_device()]
