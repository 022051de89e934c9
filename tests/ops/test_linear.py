import numpy as np
import pytest

import tandem as td
from tests.check import check_op


def test_linear():
    shapes = [
        ((3, 4), (5, 4), (5,)),
        ((2, 3, 4), (5, 4), (5,)),
        ((4,), (5, 4), (5,)),
        ((3, 4), (5, 4)),
        ((0, 4), (5, 4)),
    ]
    check_op(td.linear, lambda x, w, b=0: x @ w.T + b, shapes=shapes, rtol=1e-4, atol=1e-5)
    check_op(td.linear, lambda x, w: x @ w, shapes=[((3, 4), (4,))])
    with pytest.raises(td.ShapeError, match="last axis"):
        td.linear(td.zeros(2, 3), td.zeros(4, 5))
    with pytest.raises(td.ShapeError, match="bias"):
        td.linear(td.zeros(2, 3), td.zeros(4, 3), td.zeros(3))


def test_gradient_of_the_weight_has_its_layout():
    w = td.zeros(5, 4, requires_grad=True)
    td.linear(td.ones(3, 4), w).sum().backward()
    assert w.grad.is_contiguous()


def test_bilinear():
    check_op(td.bilinear, lambda a, b, w, c: np.einsum("...m,...n,omn->...o", a, b, w) + c,
             shapes=[((2, 3), (2, 4), (5, 3, 4), (5,)), ((3,), (4,), (2, 3, 4), (2,))], rtol=1e-4, atol=1e-5)  # fmt: skip


def test_products():
    check_op(td.mm, np.matmul, shapes=[((2, 3), (3, 4))])
    check_op(td.bmm, np.matmul, shapes=[((2, 2, 3), (2, 3, 2))])
    check_op(td.mv, np.matmul, shapes=[((2, 3), (3,))])
    check_op(td.dot, np.dot, shapes=[((3,), (3,))])
    check_op(td.vdot, np.vdot, shapes=[((3,), (3,))])
    check_op(td.vecdot, lambda x, y: (x * y).sum(-1), shapes=[((2, 3), (3,))])
    check_op(td.outer, np.outer, shapes=[((3,), (2,))])
    check_op(td.addmm, lambda i, a, b: i * 0.5 + 2 * (a @ b), shapes=[((4,), (2, 3), (3, 4)), ((2, 4), (2, 3), (3, 4))],
             kwargs={"beta": 0.5, "alpha": 2})  # fmt: skip
    check_op(td.addmm, lambda i, a, b: i + a @ b, shapes=[((4,), (2, 3), (3, 4))])
    check_op(td.baddbmm, lambda i, a, b: i + a @ b, shapes=[((2, 2, 4), (2, 2, 3), (2, 3, 4))])
    check_op(td.addmv, lambda i, a, b: i + a @ b, shapes=[((2,), (2, 3), (3,))])
    with pytest.raises(td.ShapeError, match="2 axes"):
        td.mm(td.zeros(3), td.zeros(3, 3))


def test_distances():
    def cosine(a, b):
        return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)

    check_op(td.cosine_similarity, cosine, shapes=[((3, 4), (3, 4)), ((3, 4), (1, 4))])
    check_op(td.pairwise_distance, lambda a, b: np.linalg.norm(a - b + 1e-6, axis=-1), shapes=[((3, 4), (3, 4))])
