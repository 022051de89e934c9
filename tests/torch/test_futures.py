"""torch.futures."""

import pytest

import tandem.torch as torch


def test_futures():
    first, second = torch.futures.Future(), torch.futures.Future()
    both = torch.futures.collect_all([first, second])
    second.set_result(2)
    assert not both.done()
    first.set_result(1)
    assert [f.wait() for f in both.wait()] == [1, 2] == torch.futures.wait_all([first, second])
    failed = first.then(lambda f: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failed.wait()
    assert torch.futures.collect_all([]).wait() == []
