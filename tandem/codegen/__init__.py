"""From graphs of primitives to kernels."""

from tandem.codegen.buffer import Buffer, Layout
from tandem.codegen.lower import lower
from tandem.codegen.schedule import (
    BlocksStep,
    EpilogueStep,
    KernelStep,
    LibraryStep,
    PartStep,
    RegionStep,
    Schedule,
    TransferStep,
    UpdateStep,
)

__all__ = [
    "BlocksStep", "Buffer", "EpilogueStep", "KernelStep", "Layout", "LibraryStep", "PartStep", "RegionStep", "Schedule",
    "TransferStep", "UpdateStep", "lower",
]  # fmt: skip
