"""Mixed precision under PyTorch's path: td.amp.autocast is td.autocast, td.amp.GradScaler is td.GradScaler."""

from tandem.autocast import GradScaler, autocast

__all__ = ["GradScaler", "autocast", "is_autocast_available"]


def is_autocast_available(device_type: str) -> bool:
    """Whether td.autocast knows the kind of device.

    >>> td.amp.is_autocast_available("cpu")
    True
    """
    return device_type in ("cpu", "cuda")
