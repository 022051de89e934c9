import pytest

from tests.fuzz.repeats import WAYS, World, compare


@pytest.mark.parametrize("way", WAYS)
def test_repeated_calls_do_the_same_when_compiled(way):
    seeds = [seed for seed in range(40) if World(seed).way == way]
    for seed in seeds[:2]:
        compare(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(2000, 2400, 40))
def test_more_repeated_calls(first):
    for seed in range(first, first + 40):
        compare(seed)
