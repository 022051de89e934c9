"""make_steps: groups become kernels and calls, in order."""

import numpy as np

import tandem.ops as F
from tandem.codegen.schedule import KernelStep, LibraryStep
from tandem.codegen.targets import target_of
from tests.codegen.lowering import lowered
from tests.codegen.ops import exp

X = np.ones((6, 6), np.float32)


def test_a_step_for_every_group():
    lowering = lowered(lambda x, y: exp(F.Matmul()(exp(x), y)), [X, X], "make_steps")
    assert [type(s) for s in lowering.steps] == [KernelStep, LibraryStep, KernelStep]
    assert lowering.steps[1].routine == "matmul"


def test_a_call_is_what_the_target_makes_of_it():
    lowering = lowered(lambda x, y: F.Matmul()(x, y), [X, X], "make_steps", target=target_of(1))
    assert all(s.routine.startswith("cuda.") for s in lowering.steps if isinstance(s, LibraryStep))
