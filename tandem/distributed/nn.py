"""PyTorch's path to collectives that have gradients: `torch.distributed.nn` and `torch.distributed.nn.functional`."""

from tandem.aliases import also_at as _also_at
from tandem.distributed import functional
from tandem.distributed.functional import *  # noqa: F403

__path__ = []  # the functions are found below it, too
_also_at(f"{__name__}.functional", functional)
