"""What conftest.py does for all tests."""

import random

import numpy as np
import pytest

import tandem as td
from tests import conftest


def test_what_needs_lapack_is_skipped_where_there_is_none(request):
    def called(error):
        hook = conftest.pytest_runtest_call(request.node)
        next(hook)
        hook.throw(error)

    with pytest.raises(pytest.skip.Exception, match="no LAPACK"):
        called(td.UnsupportedError("cholesky", conftest.NO_LAPACK + ": there is no file"))
    with pytest.raises(td.UnsupportedError, match="something else"):
        called(td.UnsupportedError("cholesky", "something else"))


NUMBERS = np.random.default_rng(0)
DRAWN = []


@pytest.mark.parametrize("turn", range(3))
def test_random_numbers_do_not_depend_on_the_tests_before(turn):
    DRAWN.append((td.rand(1).item(), random.random(), np.random.rand(), NUMBERS.random()))
    assert {DRAWN[0]} == set(DRAWN)
