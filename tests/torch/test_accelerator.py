"""torch.accelerator."""

import tandem as td
import tandem.torch as torch


def test_the_accelerator_is_the_cuda_device():
    there = td.cuda.is_available()
    assert torch.accelerator.is_available() is there
    assert torch.accelerator.current_accelerator() == (td.device("cuda") if there else None)
    assert torch.accelerator.device_count() == td.cuda.device_count()
    torch.accelerator.synchronize()
