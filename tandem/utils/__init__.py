"""PyTorch's paths for parts that live elsewhere here: utils.data is td.data, utils.checkpoint is td.remat, utils.tensorboard
writes TensorBoard's event files."""

import importlib

_MODULES = ("_foreach_utils", "_pytree", "checkpoint", "data", "dlpack", "hooks", "model_zoo", "tensorboard")


def __getattr__(name):
    if name in _MODULES:
        return importlib.import_module(f"tandem.utils.{name}")
    raise AttributeError(f"module 'tandem.utils' has no attribute {name!r}")
