"""Mixed precision on CUDA devices under PyTorch's path; td.amp has it for all devices."""

from __future__ import annotations

from tandem import dtypes
from tandem.amp import custom_bwd, custom_fwd
from tandem.autocast import GradScaler
from tandem.autocast import autocast as _autocast

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(_autocast):
    """td.autocast("cuda")."""

    def __init__(self, enabled: bool = True, dtype=None, cache_enabled: bool = True):
        super().__init__("cuda", dtype or dtypes.float16, enabled)
