"""Backward of several records as one operator (Note [Joined records] in src/autograd/record.h): the CPU's gradients."""

import numpy as np
import pytest

import tandem as td
from tandem import nn

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")]


class Block(nn.Module):
    """A residual block whose ReLUs go two ways and follow a normalisation or a sum."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList([nn.BatchNorm2d(8) for _ in range(2)])

    def forward(self, x):
        h = self.norms[0](self.first(x)).relu()
        y = (self.norms[1](self.second(h)) + h).relu()
        return (y.exp() + y.sin()) * y.cos()


@pytest.mark.parametrize("layout", [td.contiguous_format, td.channels_last])
def test_gradients_that_meet_and_follow_each_other(layout):
    td.manual_seed(0)
    here = Block()
    there = Block()
    there.load_state_dict(here.state_dict())
    there = there.to("cuda").to(memory_format=layout)
    x = td.randn(4, 8, 12, 12)
    moved = x.to("cuda").to(memory_format=layout).requires_grad_()
    x.requires_grad_()
    for _ in range(2):
        want = td.autograd.grad((here(x) ** 2).mean(), [x, *here.parameters()])
        have = td.autograd.grad((there(moved) ** 2).mean(), [moved, *there.parameters()])
        for a, b in zip(have, want, strict=True):
            a, b = a.cpu().numpy(), b.numpy()
            assert np.linalg.norm(a - b) <= 1e-4 * np.linalg.norm(b)


def test_each_output_of_an_operator_has_its_own_join():
    x = td.arange(12.0).reshape(3, 4).cuda().requires_grad_()
    for position in (0, 1):
        parts = td.topk(x, 2, dim=1)[0], x * 1.0
        y = parts[position].relu()
        (g,) = td.autograd.grad((y + y.sin()).sum(), [x])
        z = td.arange(12.0).reshape(3, 4).requires_grad_()
        parts = td.topk(z, 2, dim=1)[0], z * 1.0
        y = parts[position].relu()
        (want,) = td.autograd.grad((y + y.sin()).sum(), [z])
        np.testing.assert_allclose(g.cpu().numpy(), want.numpy(), rtol=1e-5)
