import numpy as np

import tandem as td
import tandem.ops as F
from tandem.autodiff.reverse import vjp
from tandem.ops.define import op
from tests.check import assert_close


def test_gradient_of_a_formula_inside_an_operator():
    @op(hidden=True)
    def slopes(x: "Tensor", y: "Tensor", g: "Tensor"):  # noqa: F821
        seen = F.exp(x)  # a node that the formula shares with what came before
        return tuple(vjp(lambda a, b: F.exp(a) * b, [x, y], [g])) + (seen,)

    x, y, g = (td.tensor(v) for v in ([0.5, 1.0], [2.0, 3.0], [1.0, 10.0]))
    by_x, by_y, _ = slopes(x, y, g)
    e = np.exp([0.5, 1.0])
    assert_close(by_x, np.array([1.0, 10.0]) * e * [2.0, 3.0])
    assert_close(by_y, np.array([1.0, 10.0]) * e)
