"""torch.save and torch.load: state as td.save writes it, and whole objects, such as modules, as pickles.

A pickle runs code when it is read. So, as PyTorch has it, load refuses every class in it that is not a tensor or a container,
unless it was named by add_safe_globals, or weights_only=False says that the file is trusted.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import io
import os
import pickle
import typing
from collections.abc import Callable

import tandem as td
from tandem import files
from tandem.errors import CheckpointError, DTypeError

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save"]

# What packages name in annotations and hand on to pickle.
DEFAULT_PROTOCOL = 2
MAP_LOCATION = Callable | str | dict | None
FILE_LIKE = FileLike = str | os.PathLike | typing.IO[bytes]

_MAGIC = b"tandem pickle 1\n"
_safe: list = []
_CONTAINERS = ("set", "frozenset", "complex", "bytearray", "slice", "range")
_OURS = {
    ("tandem.tensors.methods", "_rebuild"), ("tandem._runtime", "Tensor"), ("tandem", "Tensor"), ("tandem", "Size"),
    ("tandem.nn.parameter", "Parameter"), ("tandem.nn.parameter", "Buffer"), ("tandem.dtypes", "by_name"),
    ("tandem.ops.define", "_find"),  # an operator by its name
}  # fmt: skip


def add_safe_globals(safe_globals: list) -> None:
    """Classes and functions that load may call when it reads a pickle."""
    _safe.extend(safe_globals)


def clear_safe_globals() -> None:
    _safe.clear()


def get_safe_globals() -> list:
    return list(_safe)


@contextlib.contextmanager
def safe_globals(safe_globals: list):
    """These are safe inside."""
    before = list(_safe)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe[:] = before


def save(obj, f, pickle_module=None, pickle_protocol: int = 4, _use_new_zipfile_serialization: bool = True) -> None:
    """Saves state, as td.save does, or another object with the tensors in it, as a pickle.

    f: a path or an open binary file

    >>> import io
    >>> file = io.BytesIO()
    >>> td.torch.save(td.nn.Linear(2, 1), file)
    >>> _ = file.seek(0)
    >>> td.torch.load(file, weights_only=False)
    Linear(in_features=2, out_features=1, bias=True)
    """
    try:
        td.save(obj, f)
        return
    except DTypeError:
        pass  # not state alone
    data = _MAGIC + pickle.dumps(obj, protocol=max(pickle_protocol, 2))
    if hasattr(f, "write"):
        f.write(data)
    else:
        files.write(f, data)


def load(
    f, map_location=None, pickle_module=None, *, weights_only: bool | None = None, mmap: bool | None = None, **unused
):
    """What save wrote, safetensors files, and files of weights by PyTorch.

    weights_only: False reads pickles of any objects, which runs what is in them: only for files that you trust
    """
    data = _pickle_in(f)
    if data is None:
        where = {} if map_location is None or callable(map_location) else {"map_location": map_location}
        return td.load(f, **where, mmap=bool(mmap))
    trusted = weights_only is False
    return (pickle.Unpickler if trusted else _Careful)(io.BytesIO(data)).load()


def _pickle_in(f) -> bytes | None:
    """The pickle in a file of ours; None if it is none."""
    if hasattr(f, "read"):
        at = f.tell()
        if f.read(len(_MAGIC)) == _MAGIC:
            return f.read()
        f.seek(at)
        return None
    if not os.path.isfile(f):
        return None
    with builtins.open(f, "rb") as file:
        return file.read() if file.read(len(_MAGIC)) == _MAGIC else None


class _Careful(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) in _OURS or (module == "builtins" and name in _CONTAINERS):
            return super().find_class(module, name)
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        for known in _safe:
            thing, path = known if isinstance(known, tuple) else (known, f"{known.__module__}.{known.__qualname__}")
            if path == f"{module}.{name}":
                return thing
        raise CheckpointError(
            "load", f"the file is a pickle that asks for {module}.{name}, and reading it would run that",
            fix="load(..., weights_only=False) if you trust the file, or torch.serialization.add_safe_globals([...])",
        )  # fmt: skip
