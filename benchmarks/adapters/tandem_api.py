"""The names that cases use, as Tandem has them."""

import importlib.metadata

import tandem as td
from tandem import conv2d, gelu, randn, zeros  # noqa: F401

try:
    version = importlib.metadata.version("tandem")
except importlib.metadata.PackageNotFoundError:
    version = "source"


def set_threads(count):
    if hasattr(td, "set_num_threads"):
        td.set_num_threads(count)  # else TANDEM_NUM_THREADS, which the runner sets, decides


def channels_last(x):
    return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
