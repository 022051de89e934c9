"""Matrix products whose operands broadcast."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_op

SHAPES = [
    ((1, 5, 3, 4, 6), (2, 5, 1, 6, 1)),  # one matrix of each kind for many vectors
    ((4, 1, 1, 6), (5, 6, 3)),
    ((4, 5, 1, 6), (5, 6, 3)),
    ((4, 5, 2, 6), (4, 1, 6, 3)),
    ((4, 5, 2, 6), (5, 6, 3)),
    ((2, 1, 4, 1, 6), (2, 3, 1, 6, 1)),
    ((5, 6), (4, 5, 6, 1)),
    ((6,), (4, 6, 3)),
    ((4, 3, 6), (6,)),
    ((2, 1, 3, 6), (1, 4, 6, 1)),
    ((1, 1, 3, 6), (1, 1, 6, 1)),
    ((0, 1, 1, 6), (5, 6, 3)),
    ((4, 1, 1, 0), (5, 0, 3)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_products_of_operands_that_broadcast(a, b):
    check_op(td.matmul, np.matmul, shapes=[(a, b)])


def kernels(fn):
    fn()
    with td.profile() as found:
        fn()
    return [row.name for row in found.rows("kernel")]


def test_one_matrix_for_many_vectors_has_a_product_for_its_gradient():
    w, x = td.randn(3, 4, 16, 8, requires_grad=True), td.randn(32, 3, 1, 8, 1, requires_grad=True)
    names = kernels(lambda: (w @ x).sum().backward())
    assert not [n for n in names if "sum" in n and "matmul_backward" in n], names
