"""Devices: where tensors live."""

from __future__ import annotations

from tandem import _runtime
from tandem.errors import DeviceError


class Device:
    """A place for tensors, written "cpu", "cuda" or "cuda:1". Equal to its name. As a context, where new tensors are made.

    >>> with td.device("cpu"):
    ...     td.ones(2).device
    device('cpu')
    """

    __slots__ = ("_before", "index", "type")

    def __init__(self, type: str, index: int | None = None):
        if index is None and ":" in type:
            type, _, number = type.partition(":")
            index = int(number)
        self.type = type
        self.index = index
        self._before: list[int] = []

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
        self._before.append(_runtime.set_default_device(code_of(self)))
        return self

    def __exit__(self, *exc):
        _runtime.set_default_device(self._before.pop())


def _canonical(name: str) -> str:
    return {"cpu:0": "cpu", "cuda": "cuda:0"}.get(name, name)


CPU = Device("cpu")
DEVICES = [CPU] + [Device("cuda", i) for i in range(15)]  # what Tensor.device gives, by the runtime's number


def as_device(device) -> Device:
    """The device for a Device, a name or the number of a CUDA device; raises if it is not there."""
    return DEVICES[code_of(device)]


def code_of(device) -> int:
    """The runtime's number for a device: 0 for the CPU, k for cuda:(k - 1). Raises if the device is not there."""
    if device is None:
        return _runtime.default_device()
    if isinstance(device, Device):
        kind, index = device.type, device.index
    elif isinstance(device, int) and not isinstance(device, bool):
        kind, index = "cuda", device
    elif isinstance(device, str):
        kind, _, number = device.partition(":")
        if number and not number.isdigit():
            raise DeviceError(None, f"device {device!r} has no number; write 'cpu', 'cuda' or 'cuda:1'")
        index = int(number) if number else None
    else:
        raise DeviceError(None, f"{device!r} is no device; write 'cpu', 'cuda' or 'cuda:1'")
    if kind == "cpu":
        if index:
            raise DeviceError(None, f"device 'cpu:{index}' is not available; there is one 'cpu'")
        return 0
    if kind != "cuda":
        raise DeviceError(None, f"device {str(device)!r} is not known; known are 'cpu' and 'cuda'")
    problem = _runtime.cuda_unavailable()
    if problem:
        raise DeviceError(None, f"device {str(device)!r} is not available: {problem}")
    index = index or 0
    count = _runtime.cuda_device_count()
    if index >= count:
        raise DeviceError(None, f"device 'cuda:{index}' is not available; this machine has {count} CUDA device(s)")
    return index + 1
