"""Exchange of tensors by DLPack, by PyTorch's path: td.from_dlpack takes tensors of other libraries as they are."""

from tandem import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
