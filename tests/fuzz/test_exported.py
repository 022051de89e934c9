import pytest

from tests.fuzz.exported import compare


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_exports_agree_with_eager_calls(first):
    for seed in range(first, first + 20):
        compare(seed)


@pytest.mark.filterwarnings("ignore")
def test_seeds_that_found_something():
    compare(100082)  # a slice with less than no elements for a size that was tried
    compare(100217)  # whether any of no elements is true, in ONNX files


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(1000, 1400, 50))
def test_more_exports(first):
    for seed in range(first, first + 50):
        compare(seed)
