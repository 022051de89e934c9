"""Tensors without memory that PyTorch traces with: there are none here, which isinstance and is_fake tell."""

from tandem import Tensor


class FakeTensor(Tensor):
    """Nothing is one."""


def is_fake(x) -> bool:
    return False
