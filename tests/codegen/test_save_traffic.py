"""save_traffic: the order of casts and reshapes, and masks of ReLUs, where memory is what costs."""

import numpy as np

import tandem.ops as F
from tandem import dtypes
from tandem.codegen.targets import target_of
from tests.codegen.lowering import lowered, names

X = np.ones((6, 4), np.float32)


def test_a_cast_of_a_reshaped_value_comes_before_the_reshape():
    program = lambda x: F.Cast(dtypes.float16)(F.Reshape((24,))(F.Exp()(x)))
    fixed = np.ones((6, 4), np.float32)
    before, after = (
        lowered(program, [fixed], "save_traffic", target=target_of(1), skip=s) for s in (["save_traffic"], [])
    )
    order = lambda made: [n for n in names(made) if n in ("cast", "reshape")]
    assert order(before) == ["reshape", "cast"] and order(after) == ["cast", "reshape"]


def test_the_sign_is_asked_of_what_backward_reads_anyway():
    def program(x, g):
        y = F.Relu()(x + x)
        mask = F.Less()(F.Constant(0.0, dtypes.float32)(), y)
        return y, F.Where()(mask, g, F.Constant(0.0, dtypes.float32)()), F.Exp()(x)

    lowering = lowered(program, [X, X], "save_traffic", target=target_of(1))
    (less,) = (n for n in lowering.graph.nodes if n.op.name == "less")
    assert less.inputs[1].op.name == "add"
