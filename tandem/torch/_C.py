"""What packages ask of PyTorch's runtime by its private name, and can be answered."""

import contextlib

from tandem import Generator, Size, Tensor
from tandem.errors import LinAlgError as _LinAlgError  # noqa: F401
from tandem.torch.subclasses import DisableTorchFunctionSubclass, _disabled_torch_function_impl

__all__ = ["DisableTorchFunctionSubclass", "Generator", "Size", "Tensor", "_disabled_torch_function_impl"]

TensorBase = Tensor


def _log_api_usage_once(name: str) -> None:
    """Nothing is logged."""


def _get_tracing_state():
    """None: nothing is traced by TorchScript."""


def _is_tracing() -> bool:
    return False


class _AnyName(type):
    def __getattr__(cls, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return name


class DispatchKey(metaclass=_AnyName):
    """Keys of PyTorch's dispatcher: any name is one, and nothing here dispatches by them."""


class DispatchKeySet(frozenset):
    """Keys as a set."""

    def __new__(cls, *keys):
        return super().__new__(cls, keys)


DisableTorchFunction = DisableTorchFunctionSubclass


def _are_functorch_transforms_active() -> bool:
    """False: td.vmap and kin run functions on tensors that are no wrappers."""
    return False


class _ExcludeDispatchKeyGuard(contextlib.nullcontext):
    """Changes nothing: there is no dispatcher whose keys could be left out."""
