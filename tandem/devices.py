"""Devices: where tensors live."""

from __future__ import annotations

from tandem.errors import DeviceError


class Device:
    """A place for tensors, written "cpu". Equal to its name."""

    __slots__ = ("type", "index")

    def __init__(self, type: str, index: int | None = None):
        self.type = type
        self.index = index

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self):
        return f"device({str(self)!r})"

    def __eq__(self, other):
        return str(self) == str(other) if isinstance(other, (Device, str)) else NotImplemented

    def __hash__(self):
        return hash(str(self))


CPU = Device("cpu")


def as_device(device) -> Device:
    """The device for a Device or a name; raises if it is not there."""
    if isinstance(device, Device):
        return device
    if device in ("cpu", "cpu:0"):
        return CPU
    raise DeviceError(None, f"device {device!r} is not available; available is 'cpu'")
