"""Devices: where tensors live."""

from __future__ import annotations

import contextlib

from tandem import _runtime
from tandem.errors import DeviceError

# What a device scope enters besides: functions of a device that give a context. Deferred graphs put theirs here.
scopes: list = []


class Device:
    """A place for tensors, written "cpu", "cuda" or "cuda:1"; raises if it is not there. Equal to its name.
    As a context, where new tensors are made and where nodes of a deferred graph are to run. `td.device` is this class.

    >>> with td.device("cpu"):
    ...     td.ones(2).device
    device('cpu')
    """

    __slots__ = ("_before", "index", "type")

    def __init__(self, type: str | int | Device, index: int | None = None):
        if isinstance(type, Device):
            type, index = type.type, type.index
        elif isinstance(type, str):
            type = f"{type}:{index}" if index is not None else type
            # TensorFlow writes "/device:CPU:0".
            type, _, number = (
                type.removeprefix("/job:localhost").removeprefix("/device:").lstrip("/").lower().partition(":")
            )
            index = int(number) if number.isdigit() else number or None
        elif isinstance(type, int) and not isinstance(type, bool):
            type, index = "cuda", type
        else:
            raise DeviceError(None, f"{type!r} is no device; write 'cpu', 'cuda' or 'cuda:1'")
        self.type = type
        self.index = index
        self._before: list = []
        code_of(self)

    @classmethod
    def _unchecked(cls, type: str, index: int | None) -> Device:
        made = object.__new__(cls)
        made.type, made.index, made._before = type, index, []
        return made

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self):
        return f"device({str(self)!r})"

    def __eq__(self, other):
        if not isinstance(other, (Device, str)):
            return NotImplemented
        return _canonical(str(self)) == _canonical(str(other))

    def __hash__(self):
        return hash(_canonical(str(self)))

    def __enter__(self):
        code = code_of(self)
        before = _runtime.set_default_device(code), _runtime.set_device_scope(code)
        with contextlib.ExitStack() as stack:
            for scope in scopes:
                stack.enter_context(scope(self))
            self._before.append((before, stack.pop_all()))
        return self

    def __exit__(self, *exc):
        before, stack = self._before.pop()
        _runtime.set_default_device(before[0])
        _runtime.set_device_scope(before[1])
        stack.close()


def _canonical(name: str) -> str:
    return {"cpu:0": "cpu", "cuda": "cuda:0"}.get(name, name)


CPU = Device._unchecked("cpu", None)
DEVICES = [CPU] + [Device._unchecked("cuda", i) for i in range(15)]  # what Tensor.device gives, by the runtime's number


def named(name: str) -> Device:
    """The device of this name, whether this machine has it or not."""
    kind, _, index = name.partition(":")
    return Device._unchecked(kind, int(index) if index else None)


def as_device(device) -> Device:
    """The device for a Device, a name or the number of a CUDA device; raises if it is not there."""
    return DEVICES[code_of(device)]


def code_of(device) -> int:
    """The runtime's number for a device: 0 for the CPU, k for cuda:(k - 1). Raises if the device is not there."""
    if device is None:
        return _runtime.default_device()
    if device == "cpu":  # the usual one, without looking closer
        return 0
    if not isinstance(device, Device):
        device = Device(device)
    kind, index = device.type, device.index
    if isinstance(index, str):
        raise DeviceError(None, f"device {str(device)!r} has no number; write 'cpu', 'cuda' or 'cuda:1'")
    if kind == "cpu":
        if index:
            raise DeviceError(None, f"device 'cpu:{index}' is not available; there is one 'cpu'")
        return 0
    if kind != "cuda":
        raise DeviceError(None, f"device {str(device)!r} is not known; known are 'cpu' and 'cuda'")
    problem = _runtime.cuda_unavailable()
    if problem:
        problem, _, fix = problem.partition("\n  fix: ")
        raise DeviceError(None, f"device {str(device)!r} is not available: {problem}", fix or None)
    index = index or 0
    count = _runtime.cuda_device_count()
    if index >= count:
        raise DeviceError(None, f"device 'cuda:{index}' is not available; this machine has {count} CUDA device(s)")
    return index + 1


def set_default_device(device) -> None:
    """Where tensors are made when no device is given; None means the CPU. `with td.device(...)` does it for a while.

    >>> td.set_default_device("cpu")
    """
    _runtime.set_default_device(0 if device is None else code_of(device))


def get_default_device() -> Device:
    """Where tensors are made when no device is given.

    >>> td.get_default_device()
    device('cpu')
    """
    return DEVICES[_runtime.default_device()]
