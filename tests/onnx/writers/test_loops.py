"""Branches and loops in ONNX files."""

import pytest

import tandem as td
from tests.onnx.writers.roundtrip import check_save

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")


def test_branches_and_loops():
    check_save(lambda x: td.cond(x.sum() > 0, lambda: x * 2, lambda: x - 1), td.ones(3, 2))
    check_save(lambda x: td.cond(x.sum() > 0, lambda: x * 2, lambda: x - 1), -td.ones(3, 2))

    def doubled(x):
        return td.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0), (td.tensor(0), x))[1]

    check_save(doubled, td.randn(3, 2))

    def summed(x):
        total, rows = td.scan(lambda c, r: (c + r, c * r), td.zeros(4), x)
        return rows + total

    check_save(summed, td.randn(3, 4))
