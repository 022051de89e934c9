import numpy as np
import pytest

from tests.ops.last_places import CASES, errors


def check(name, count, dtype):
    allowed = CASES[name].allowed[dtype is np.float64]
    off, where = errors(name, count, dtype)
    assert off <= allowed, f"{name}({where!r}) is {off:.2f} units of the last place off; {allowed} are allowed"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_functions_are_as_good_as_the_table_says(name, dtype):
    check(name, 60, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_functions_are_as_good_at_many_points(name, dtype):
    check(name, 5000, dtype)
