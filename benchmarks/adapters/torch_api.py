"""The names that cases use, as PyTorch has them."""

import torch
from torch import randn, zeros  # noqa: F401
from torch.nn.functional import conv2d, gelu  # noqa: F401

version = torch.__version__


def set_threads(count):
    torch.set_num_threads(count)


def channels_last(x):
    return x.contiguous(memory_format=torch.channels_last)
