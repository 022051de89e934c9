"""From graphs of primitives to kernels."""

from tandem.codegen.buffer import Buffer, Layout
from tandem.codegen.lower import lower
from tandem.codegen.schedule import KernelStep, LibraryStep, RegionStep, Schedule

__all__ = ["Buffer", "KernelStep", "Layout", "LibraryStep", "RegionStep", "Schedule", "lower"]
