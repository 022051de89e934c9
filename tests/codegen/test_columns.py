"""Kernels that reduce across memory."""

import numpy as np
import pytest

import tandem as td
from tandem.codegen.loops import Loop
from tandem.codegen.lower import lower
from tests.codegen.run_schedule import build, run


def _vector_loops(body: list) -> list[Loop]:
    loops = []
    for statement in body:
        if isinstance(statement, Loop):
            loops += [statement] if statement.mode == "vector" else _vector_loops(statement.body)
    return loops


@pytest.mark.parametrize("function", [lambda x: x.sum(0), lambda x: x.amax(0), lambda x: x.argmin(0)])
def test_only_columns_that_there_are_begin_from_the_identity(function):
    x = np.arange(48, dtype=np.float32).reshape(16, 3)
    trace = build(function, [x])
    schedule = lower(trace.graph, trace.layouts)
    for step in schedule.steps:
        first, *others = _vector_loops(step.kernel.body)
        assert others
        assert all(loop.end is first.end for loop in others)
    np.testing.assert_array_equal(run(schedule, trace.graph, [x])[0], function(td.tensor(x)))
