"""batch_launches: one kernel on many parameters is one launch on devices."""

import numpy as np

from tandem.codegen.cuda.batch import BatchedStep
from tandem.codegen.targets import target_of
from tests.codegen.lowering import lowered
from tests.codegen.ops import add

ARRAYS = [np.ones((2, n), np.float32) for n in (3, 4, 5, 6, 7)]


def updates(*values):
    return tuple(add(v, 1.0) for v in values)


def test_updates_of_parameters_are_one_launch():
    mutate = {i: i for i in range(len(ARRAYS))}
    lowering = lowered(updates, ARRAYS, "batch_launches", target=target_of(1), mutate=mutate)
    assert [type(s) for s in lowering.steps] == [BatchedStep] and len(lowering.steps[0].extents) == len(ARRAYS)


def test_the_cpu_has_no_launches_to_save():
    mutate = {i: i for i in range(len(ARRAYS))}
    assert len(lowered(updates, ARRAYS, "batch_launches", mutate=mutate).steps) == len(ARRAYS)
