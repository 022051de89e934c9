import pytest

from tests.fuzz.machines import compare


@pytest.mark.parametrize("seed", [5, 11])
def test_machines_do_the_same_when_compiled(seed):
    compare(seed, calls=5)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1200, 20))
def test_more_machines(first):
    for seed in range(first, first + 20):
        compare(seed)
