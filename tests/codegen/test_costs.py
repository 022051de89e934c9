"""Costs of targets come from properties of the processor or device."""

import numpy as np

import tandem.ops as F
from tandem.codegen.costs import CpuCosts, CudaCosts, second_level_cache
from tandem.codegen.cuda.target import CudaTarget
from tests.codegen.lowering import lowered


def test_a_device_with_fewer_multiprocessors_gets_fewer_blocks():
    x = np.ones((1 << 16, 8), np.float32)
    extents = []
    for processors in (132, 20):
        target = CudaTarget(0)
        target.costs = CudaCosts(processors)
        lowering = lowered(lambda x: F.Reduce("sum", (0,))(x), [x], "make_steps", target=target)
        extents.append(str(lowering.steps[0].extent))
    assert extents[0] != extents[1] and "1056" in extents[0] and "160" in extents[1]


def test_a_larger_cache_holds_larger_parameters():
    assert CpuCosts(2 << 20).update_bytes == 2 * CpuCosts(1 << 20).update_bytes
    assert second_level_cache() >= 1 << 15
