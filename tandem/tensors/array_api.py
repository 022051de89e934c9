"""What the Array API standard asks of a namespace as a whole: its version, how a tensor names it, and what it can do."""

from __future__ import annotations

from tandem import dtypes
from tandem.devices import CPU, as_device
from tandem.errors import UnsupportedError, ValueRangeError
from tandem.tensors.dtype_functions import isdtype

VERSION = "2025.12"
namespace = None  # tandem itself, which sets it (tandem/__init__.py)
_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", VERSION)  # later ones only add to earlier ones
MAX_DIMENSIONS = 32  # kMaxDims of src/tensor/view.h
_DTYPES = {t.name: t for t in dtypes.ALL if t.name not in ("float16", "bfloat16")}  # those the standard knows


class NamespaceInfo:
    """What the namespace can do: capabilities, devices and dtypes."""

    def capabilities(self) -> dict:
        """Whether there are boolean indexing and data-dependent shapes, and how many axes a tensor may have."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MAX_DIMENSIONS}

    def default_device(self):
        """The device of tensors that are made without naming one."""
        return CPU

    def default_dtypes(self, *, device=None) -> dict:
        """The dtypes of tensors that are made without naming one, by kind."""
        _check(device)
        return {
            "real floating": dtypes.default_float(),
            "complex floating": dtypes.default_complex(),
            "integral": dtypes.int64,
            "indexing": dtypes.int64,
        }

    def devices(self) -> tuple:
        """The devices that are there."""
        return (CPU,)

    def dtypes(self, *, device=None, kind=None) -> dict:
        """The standard's dtypes by name; with kind, those of a kind or of any of a tuple of kinds (see isdtype)."""
        _check(device)
        return {name: t for name, t in _DTYPES.items() if kind is None or isdtype(t, kind)}


def _check(device):
    if device is not None:
        as_device(device)


def __array_namespace_info__() -> NamespaceInfo:
    """An object that answers what the namespace can do.

    >>> td.__array_namespace_info__().default_dtypes()["integral"]
    tandem.int64
    """
    return NamespaceInfo()


def array_namespace(self, /, *, api_version: str | None = None):
    """The module whose functions work on this tensor, as the Array API standard asks for it."""
    if api_version is not None and api_version not in _VERSIONS:
        raise ValueRangeError(
            "__array_namespace__", f"api_version is {api_version!r}; known versions are {', '.join(_VERSIONS)}"
        )
    return namespace


def to_device(self, device, /, *, stream=None):
    """This tensor on another device; itself if it is there already."""
    as_device(device)
    if stream is not None:
        raise UnsupportedError("to_device", "a tensor in main memory has no stream", fix="leave out stream")
    return self
