"""PyTorch's path to OptimizedModule."""

from tandem.torch._dynamo import OptimizedModule

__all__ = ["OptimizedModule"]


def is_dynamo_supported() -> bool:
    return True
