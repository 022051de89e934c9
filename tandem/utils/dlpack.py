"""Exchange of tensors by DLPack, by PyTorch's path: td.from_dlpack takes tensors of other libraries as they are."""

from tandem import from_dlpack

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor):
    """A DLPack capsule of the tensor's memory, which can be taken once."""
    return tensor.__dlpack__()
