"""Random models of cells under td.autobatch give what they give without it, also when their calls have become known."""

import pytest

import tandem as td
from tests.fuzz import cells


@pytest.fixture
def cells_at_once():
    """Every cell is compiled when it is first seen, so that its calls are known when they come again."""
    before = td._runtime.set_cells_worth_compiling(1)
    yield
    td._runtime.set_cells_worth_compiling(before)


@pytest.mark.parametrize("seed", range(2))
def test_random_cells(seed, cells_at_once):
    cells.check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 160, 10))
def test_more_random_cells(first, cells_at_once):
    for seed in range(first, first + 10):
        cells.check(seed)
