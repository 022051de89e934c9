"""Matrices made of positions: diagonals, triangles, grids."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_op


def test_meshgrid():
    for indexing in ("xy", "ij"):
        check_op(td.meshgrid, lambda *x, i=indexing: np.meshgrid(*x, indexing=i),
             shapes=[((2,), (3,)), ((2,), (3,), (4,)), ((2,),)],
                 kwargs={"indexing": indexing}, test_layouts=False)  # fmt: skip
    with pytest.raises(td.ValueRangeError):
        td.meshgrid(td.zeros(2), indexing="yx")
