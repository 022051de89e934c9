"""What packages ask of PyTorch's runtime by its private name, and can be answered."""

from tandem import Generator, Size, Tensor

__all__ = ["Generator", "Size", "Tensor"]

TensorBase = Tensor


def _log_api_usage_once(name: str) -> None:
    """Nothing is logged."""


def _get_tracing_state():
    """None: nothing is traced by TorchScript."""


def _is_tracing() -> bool:
    return False
