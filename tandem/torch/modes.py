"""What programs ask of PyTorch's state: mixed precision, checks of gradients, layouts, threads."""

from __future__ import annotations

import tandem as td
from tandem import _runtime, dtypes
from tandem.autocast import is_autocast_enabled
from tandem.graph.ir import Value
from tandem.layouts import Layout as layout
from tandem.ops.memory_format import MemoryFormat as memory_format


def _autocast_dtype(device_type: str):
    mode = _runtime.autocast_mode()
    if not is_autocast_enabled(device_type):
        return td.float16 if device_type == "cuda" else td.bfloat16
    return next(t for t in dtypes.ALL if t.code == (mode - 1) % 16)


def get_autocast_dtype(device_type: str):
    """The 16-bit type that autocast takes on a kind of device.

    >>> with td.autocast("cpu", td.float16):
    ...     td.torch.get_autocast_dtype("cpu")
    tandem.float16
    """
    return _autocast_dtype(str(device_type).partition(":")[0])


def get_autocast_cpu_dtype():
    """get_autocast_dtype("cpu").

    >>> td.torch.get_autocast_cpu_dtype()
    tandem.bfloat16
    """
    return _autocast_dtype("cpu")


def get_autocast_gpu_dtype():
    """get_autocast_dtype("cuda").

    >>> td.torch.get_autocast_gpu_dtype()
    tandem.float16
    """
    return _autocast_dtype("cuda")


def is_autocast_cpu_enabled() -> bool:
    """is_autocast_enabled("cpu").

    >>> td.torch.is_autocast_cpu_enabled()
    False
    """
    return is_autocast_enabled("cpu")


def is_autocast_cache_enabled() -> bool:
    """Whether casts of weights are kept: there is no such cache, as they are part of the operators that take them.

    >>> td.torch.is_autocast_cache_enabled()
    False
    """
    return False


def clear_autocast_cache() -> None:
    """Nothing is kept."""


def is_anomaly_enabled() -> bool:
    """Whether detect_anomaly is in force.

    >>> td.torch.is_anomaly_enabled()
    False
    """
    return _runtime.anomaly_detection()


is_anomaly_check_nan_enabled = is_anomaly_enabled


def is_conj(input) -> bool:
    """Whether a tensor is conjugated when it is read: never, conjugates are computed.

    >>> td.torch.is_conj(td.tensor([1j]).conj())
    False
    """
    return False


is_neg = is_conj


def resolve_conj(input):
    """The tensor, whose elements are conjugated already."""
    return input


resolve_neg = resolve_conj


def can_cast(from_, to) -> bool:
    """Whether a value of one type may be stored in another: not complex in real, floating in whole numbers, or numbers in bool.

    >>> td.torch.can_cast(td.int64, td.uint8), td.torch.can_cast(td.float32, td.int64)
    (True, False)
    """
    a = from_.dtype if isinstance(from_, (td.Tensor, Value)) else dtypes.as_dtype(from_)
    b = dtypes.as_dtype(to)
    order = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}
    return order[a.kind] <= order[b.kind]


__all__ = [
    "can_cast", "clear_autocast_cache", "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype",
    "is_anomaly_check_nan_enabled", "is_anomaly_enabled",
    "is_autocast_cache_enabled", "is_autocast_cpu_enabled", "is_conj", "is_neg", "layout", "memory_format",
    "resolve_conj", "resolve_neg",
]  # fmt: skip
