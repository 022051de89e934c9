"""PyTorch's path to collectives with gradients."""

from tandem import distributed as dist
from tandem.distributed import functional


def test_it_is_the_functional_module():
    assert dist.nn.all_gather is functional.all_gather
    assert dist.nn.functional is functional
