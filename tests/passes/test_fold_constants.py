import tandem as td
import tandem.ops as F
from tandem.passes.fold_constants import fold_constants
from tests.passes.check import check_pass

M = ["f32[3,4]"]


def number(value, dtype=td.float32):
    return F.Constant(value, dtype)()


def test_constants_are_folded():
    tenth, fifth = 0.10000000149011612, 0.20000000298023224  # as float32 has them
    three_tenths = lambda x: F.Mul()(x, number(0.30000001192092896))
    check_pass(fold_constants, lambda x: F.Mul()(x, F.Add()(number(tenth), number(fifth))), three_tenths, M)
    size = lambda x: F.Cast(td.float32)(F.Size(12, td.int64)())
    check_pass(fold_constants, lambda x: F.Div()(x, size(x)), lambda x: F.Div()(x, number(12.0)), M)
    check_pass(
        fold_constants, lambda x: F.Add()(x, F.Exp()(number(1.0))), lambda x: F.Add()(x, F.Exp()(number(1.0))), M
    )
    wide = lambda x: F.Expand((3, 4))(F.Reshape((1, 1))(number(2.0)))
    check_pass(fold_constants, lambda x: F.Mul()(x, wide(x)), lambda x: F.Mul()(x, number(2.0)), M)
    both = lambda x: F.Add()(wide(x), wide(x))
    check_pass(fold_constants, both, both, M)
