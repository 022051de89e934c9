"""td.fft with PyTorch's names for parameters."""

from tandem import fft as _fft
from tandem.torch.adapt import named as _named

__all__ = list(_fft.__all__)
for _name in __all__:
    _function = getattr(_fft, _name)
    globals()[_name] = _function if _name.endswith("freq") else _named(_name, _function, "input|self")
