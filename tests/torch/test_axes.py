"""x.sum(()): no axes are all axes where the program follows PyTorch, and none by the standard."""

import pytest

import tandem as td
import tandem.nn.functional as F
import tandem.torch as torch

REDUCTIONS = ("sum", "mean", "nansum", "nanmean", "amax", "amin", "count_nonzero", "std", "var", "norm", "logsumexp")
STANDARD: dict = {"__name__": "standard", "td": td}


@pytest.mark.parametrize("none", [(), []])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_no_axes_are_all_axes_in_pytorch(name, none):
    x = torch.tensor([[1.0, 4.0, 2.0], [0.0, 7.0, 3.0]])
    everything = getattr(x, name)((0, 1)) if name != "norm" else x.norm(2, (0, 1))
    keywords = {"p": 2} if name == "norm" else {}
    for made in (getattr(x, name)(dim=none, **keywords), getattr(torch, name)(x, dim=none, **keywords)):
        assert made.shape == () and made.item() == pytest.approx(everything.item())


def test_they_are_no_axes_by_the_standard():
    made = eval("td.sum(td.tensor([1.0, 2.0]), axis=())", STANDARD)
    assert made.tolist() == [1.0, 2.0]
    assert eval("td.tensor([1.0, 2.0]).sum(axis=())", STANDARD).tolist() == [1.0, 2.0]


def test_compiled_functions_do_as_eager_ones():
    x = torch.ones(2, 3)
    assert td.compile(lambda a: a.sum(()) * 2)(x).item() == 12.0


def test_operators_made_of_others_mean_what_they_say():
    x = torch.ones(3, requires_grad=True)  # the gradient of a bias is summed over no axes at all
    w, b = torch.ones(2, 3, requires_grad=True), torch.zeros(2, requires_grad=True)
    (F.linear(x, w, b) * torch.tensor([1.0, 2.0])).sum().backward()
    assert b.grad.tolist() == [1.0, 2.0]
    assert torch.any(torch.ones(2) > 0, dim=()).shape == (2,)
