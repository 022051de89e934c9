"""Results that PyTorch and the standard define differently, in a program that follows PyTorch."""

import pytest

import tandem as td
import tandem.torch as torch

STANDARD: dict = {"__name__": "standard", "td": td}
NAN = float("nan")


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum(),
        lambda x: x.prod(0),
        lambda x: x.cumsum(1),
        lambda x: torch.sum(x),
        lambda x: td.compile(lambda a: a.sum())(x),
    ],
)
def test_unsigned_integers_add_up_to_signed_ones(call):
    for dtype in (torch.uint8, torch.uint16, torch.uint32):
        assert call(torch.ones(2, 3, dtype=dtype)).dtype is torch.int64
    assert (torch.ones(2, dtype=torch.uint8).sum() - 5).item() == -3


def test_they_stay_unsigned_by_the_standard():
    assert eval("td.sum(td.ones(2, dtype=td.uint8)).dtype is td.uint64", STANDARD)


def test_the_sign_of_nan():
    x = torch.tensor([NAN, -2.0, 0.0, 3.0])
    for made in (torch.sign(x), x.sign(), torch.sgn(x), x.sgn()):
        assert made.tolist() == [0.0, -1.0, 0.0, 1.0]
    assert eval("bool(td.isnan(td.sign(td.tensor(float('nan')))))", STANDARD)
    assert torch.sign(torch.tensor([-3, 2])).tolist() == [-1, 1]


def test_divergence_from_what_is_no_probability():
    loss = torch.nn.functional.kl_div(torch.zeros(3), torch.tensor([-0.5, 0.0, 1.0]), reduction="none")
    assert torch.isnan(loss).tolist() == [True, False, False] and loss[1:].tolist() == [0.0, 0.0]


def test_targets_of_cross_entropy_are_shares():
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        torch.nn.functional.binary_cross_entropy(torch.tensor([0.5]), torch.tensor([1.5]))


def test_running_sums_of_complex_exponentials_keep_their_sizes():
    made = torch.logcumsumexp(torch.tensor([-1000 + 1j, 0j, 5 + 2j]), 0)
    assert made[0].item() == -1000 + 1j and made[1].item() == 0
    assert made[2].item() == pytest.approx(4.99721098 + 1.99385607j, abs=1e-5)
    low = torch.logcumsumexp(torch.tensor([0j, -1000 + 1j]), 0)
    assert low.tolist() == [0, 0]
