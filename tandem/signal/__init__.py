"""Windows for signals under PyTorch's path: td.signal.windows.hann(8)."""

from tandem.signal import windows

__all__ = ["windows"]
