"""Loops and branches in C."""

from __future__ import annotations

import pytest

import tandem as td
from tests.export.c_programs import COMPILER, check

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")


@needs_compiler
def test_a_loop_and_a_branch_are_a_loop_and_a_branch(tmp_path):
    w = td.randn(3, 3)

    def fn(x, n):
        h, ys = td.scan(lambda h, row: ((h @ w).tanh() + row, h.sum()), td.zeros(3), x)
        y = td.cond(n > 0, lambda v: v * 2, lambda v: v - 1, h)
        _, total = td.while_loop(lambda i, t: i < n, lambda i, t: (i + 1, t + y.sum()), (td.tensor(0), td.tensor(0.0)))
        return {"y": y, "rows": ys, "total": total}

    x = td.randn(5, 3)
    check(fn, (x, td.tensor(3)), tmp_path, others=(x * 2, td.tensor(-1)), input_names=["rows", "int"])
    assert "const int64_t* int_" in (tmp_path / "model.h").read_text()


@needs_compiler
def test_a_loop_of_single_elements_inside_a_loop(tmp_path):
    def step(total, row):
        limit = td.while_loop(lambda a: a < 3.0, lambda a: a + 1.0, td.tensor(0.0))
        return td.cond(row.sum() > 0, lambda: total + row, lambda: total - row), limit

    check(lambda x: td.scan(step, td.zeros(3), x), (td.randn(5, 3),), tmp_path)
