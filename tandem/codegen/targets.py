"""Which target serves a device."""

from __future__ import annotations

import functools

from tandem.codegen.cpu.target import CPU
from tandem.codegen.target import Target


@functools.cache
def target_of(device: int) -> Target:
    """The target for a device's number: 0 the CPU, k cuda:(k - 1)."""
    if device == 0:
        return CPU
    from tandem.codegen.cuda.target import CudaTarget

    return CudaTarget(device - 1)
