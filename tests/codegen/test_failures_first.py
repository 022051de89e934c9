"""failures_first: what may fail comes before what is written."""

import numpy as np

from tandem.ops.index import CheckIndex, Gather
from tests.codegen.lowering import lowered
from tests.codegen.ops import add

X, POSITIONS = np.ones((6, 4), np.float32), np.zeros(3, np.int64)


def update_then_pick(x, i, y):
    return add(x, 1.0), Gather()(y, CheckIndex(y.shape[0], 0)(i))


def test_a_check_goes_before_an_update():
    order = {}
    for skip in ([], ["failures_first"]):
        made = lowered(update_then_pick, [X, POSITIONS, X.copy()], "failures_first", mutate={0: 0}, skip=skip)
        order[bool(skip)] = [getattr(s, "routine", "kernel") for s in made.steps]
    assert order[False][0] == "check_index"
    assert sorted(order[False]) == sorted(order[True])


def test_without_updates_the_order_stays():
    lowering = lowered(lambda x: add(x, 1.0), [X], "failures_first")
    assert len(lowering.steps) == 1
