"""Sums of products by their letters."""

import numpy as np
import pytest

import tandem as td
from tests.check import assert_close, check_op

RNG = np.random.default_rng(13)


EQUATIONS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij->ji", [(2, 3)]),
    ("ij", [(2, 3)]),
    ("ii", [(3, 3)]),
    ("iij->ij", [(3, 3, 2)]),
    ("ij->", [(2, 3)]),
    ("i,j", [(2,), (3,)]),
    ("bij,bjk->bik", [(2, 2, 3), (2, 3, 2)]),
    ("bhqd,bhkd->bhqk", [(2, 2, 3, 2), (2, 2, 2, 2)]),
    ("...ij,...jk->...ik", [(2, 1, 2, 3), (2, 3, 2)]),
    ("i...,i...->...", [(3, 2), (3, 2)]),
    ("ij,jk,kl->il", [(2, 3), (3, 2), (2, 3)]),
    ("ijk,jil,kl->ij", [(2, 3, 2), (3, 2, 3), (2, 3)]),
    ("ab,ab->a", [(2, 3), (2, 3)]),
    ("b...,a->ab...", [(2, 2), (3,)]),
    (" i j , j -> i ", [(2, 3), (3,)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS, ids=lambda e: e if isinstance(e, str) else "")
def test_einsum(equation, shapes):
    inputs = [tuple(RNG.normal(size=s).astype(np.float32) for s in shapes)]
    check_op(lambda *xs: td.einsum(equation, *xs), lambda *xs: np.einsum(equation, *xs), inputs=inputs, rtol=1e-4, atol=1e-5,
             names=["einsum"])  # fmt: skip


def test_einsum_broadcasts_ones_and_checks():
    assert_close(td.einsum("ij,ij->i", td.ones(2, 1), td.ones(2, 3)), [3.0, 3.0])
    with pytest.raises(td.ShapeError, match="sizes 2 and 3"):
        td.einsum("i,i", td.ones(2), td.ones(3))
    with pytest.raises(td.ValueRangeError, match="names 1 operands"):
        td.einsum("i", td.ones(2), td.ones(3))
    with pytest.raises(td.ValueRangeError, match="output label"):
        td.einsum("i->j", td.ones(2))
    with pytest.raises(td.ShapeError, match="does not fit"):
        td.einsum("ij", td.ones(2))


def test_tensordot():
    check_op(td.tensordot, np.tensordot, shapes=[((2, 3, 4), (3, 4, 2))])
    check_op(
        td.tensordot,
        lambda x, y: np.tensordot(x, y, ((0, 2), (1, 0))),
        shapes=[((2, 3, 4), (4, 2, 3))],
        kwargs={"axes": ((0, 2), (1, 0))},
    )
    check_op(td.tensordot, lambda x, y: np.tensordot(x, y, 0), shapes=[((2,), (3,))], kwargs={"axes": 0})
