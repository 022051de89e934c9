"""torch.types: names for annotations."""

from __future__ import annotations

import builtins
import os
from typing import Any

from tandem import Size, Tensor
from tandem import device as _device
from tandem import dtype as _dtype  # noqa: F401 - packages annotate with it
from tandem.ops.memory_format import MemoryFormat

__all__ = ["Device", "FileLike", "IntLikeType", "Number", "Storage"]

_TensorOrTensors = Tensor | tuple[Tensor, ...]
_size = Size | list[builtins.int] | tuple[builtins.int, ...]
_dispatchkey = str
_layout = _memory_format = MemoryFormat
_bool, _int, _float, _complex = builtins.bool, builtins.int, builtins.float, builtins.complex
_symint = IntLikeType = builtins.int
Number = builtins.int | builtins.float | builtins.bool
Device = _device | str | builtins.int | None
FileLike = str | os.PathLike[str] | Any
Storage = Any  # memory has no object of its own
