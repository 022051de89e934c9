"""copy_mutations: what is not written in place is copied after everything else, from what it was before."""

import numpy as np

from tandem.codegen import lower
from tests.codegen.lowering import lowered
from tests.codegen.ops import add
from tests.codegen.run_schedule import build, run

X = np.arange(30, dtype=np.float32).reshape(5, 6)


def test_copies_come_last():
    lowering = lowered(lambda x: add(x, 1.0), [X], "make_steps", mutate={0: 0}, skip=["write_in_place"])
    assert len(lowering.steps) == 2 and lowering.steps[-1] is lowering.copies[0]


def test_three_inputs_go_round():
    arrays = [X.copy(), X + 100, X + 200]
    before = [a.copy() for a in arrays]
    trace = build(lambda a, b, c: (b, c, a), arrays, mutate={0: 0, 1: 1, 2: 2})
    run(lower(trace.graph, trace.layouts), trace.graph, arrays)
    for i, array in enumerate(arrays):
        np.testing.assert_array_equal(before[(i + 1) % 3], array)
