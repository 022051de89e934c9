"""DataParallel, for programs that wrap their models in it; and DistributedDataParallel under PyTorch's path."""

from __future__ import annotations

from tandem._runtime import Tensor
from tandem.aliases import from_above, path
from tandem.devices import code_of
from tandem.errors import UnsupportedError
from tandem.nn.module import Module
from tandem.tree import map as map_leaves


class DataParallel(Module):
    """The module on one device: calls go to it, and its parameters have the names that PyTorch's wrapper gives them (module.*).

    Batches are not spread over several devices: naming more than one is an error.
    """

    def __init__(self, module: Module, device_ids=None, output_device=None, dim: int = 0):
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise UnsupportedError(
                "DataParallel",
                f"device_ids are {list(device_ids)}; batches are not spread over devices",
                fix="name one device",
            )
        self.dim, self.module = dim, module
        self.device_ids = [] if device_ids is None else list(device_ids)
        self.output_device = output_device
        if self.device_ids:
            number = self.device_ids[0]
            device = f"cuda:{number}" if isinstance(number, int) else number
            code_of(device)
            self.module.to(device)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


def scatter(inputs, target_gpus, dim: int = 0) -> list:
    """What each device gets, for one device: the inputs, there."""
    if len(target_gpus) != 1:
        raise UnsupportedError(
            "scatter",
            f"target_gpus are {list(target_gpus)}; batches are not spread over devices",
            fix="name one device",
        )
    target = target_gpus[0]
    device = f"cuda:{target}" if isinstance(target, int) else target
    return [map_leaves(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, inputs)]


def gather(outputs, target_device, dim: int = 0):
    """What the only device gave."""
    (only,) = outputs
    return only


# PyTorch's files: `from torch.nn.parallel.scatter_gather import scatter`
__path__ = []
path(f"{__name__}.scatter_gather", {"gather": gather, "scatter": scatter})
path(f"{__name__}.data_parallel", {"DataParallel": DataParallel})


__getattr__ = from_above(__name__)
