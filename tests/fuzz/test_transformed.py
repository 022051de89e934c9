import pytest

from tests.fuzz.transformed import compare


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [20, 132])  # they found something
def test_transforms_agree_with_eager_calls(seed):
    compare(seed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(1000, 1100, 20))
def test_more_transforms(first):
    for seed in range(first, first + 20):
        compare(seed)
