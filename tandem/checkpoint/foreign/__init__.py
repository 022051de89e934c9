"""Weights in the files of others, as state dicts: nothing in a file is ever run."""

from __future__ import annotations

import os
import zipfile

from tandem.checkpoint.foreign.gguf import read_gguf
from tandem.checkpoint.foreign.torch_file import LEGACY_MAGIC, ZIP_DAMAGE, read_legacy, read_zip
from tandem.errors import CheckpointError

__all__ = ["kind_of_file", "read_foreign", "read_gguf"]

# What a file begins with, and what it is.
_BEGINNINGS = {
    b"GGUF": "gguf",
    b"\x89HDF": "an HDF5 file (Keras's .h5)",
    b"\x93NUM": "a NumPy array (.npy)",
    b"%PDF": "a PDF",
    b"\x1f\x8b": "gzip-compressed",
    b"\x7fELF": "a program",
    b"ustar": "a tar archive",
}


def kind_of_file(path) -> str | None:
    """What a file is: "torch", "torch legacy", "gguf", a description of something else, or None for what is not known."""
    with open(path, "rb") as file:
        start = file.read(512)
    if start.startswith(b"PK\x03\x04"):
        try:
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
        except ZIP_DAMAGE as error:
            raise CheckpointError("load", f"{os.fspath(path)} is a damaged zip archive: {error}") from None
        if any(name.rpartition("/")[2] == "data.pkl" for name in names):
            return "torch"
        if any(name.endswith(".npy") for name in names):
            return "an archive of NumPy arrays (.npz)"
        return "a zip archive"
    if LEGACY_MAGIC in start[:40]:
        return "torch legacy"
    if start[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        return "a pickle, which could run code"
    if start[257:262] == b"ustar":
        return "a tar archive"
    if b"pytorch" in start[:64] or (start[:1] == b"\x08" and b"onnx" in start[:256]):
        return "an ONNX model; td.onnx.load reads it"
    return next((kind for begin, kind in _BEGINNINGS.items() if start.startswith(begin)), None)


def read_foreign(path):
    """The tensors of a PyTorch file (.pt, .pth, .bin) or of a GGUF file; None if it is neither.

    A CheckpointError says what other files are, where that can be told.
    """
    kind = kind_of_file(path)
    if kind == "torch":
        return read_zip(path)
    if kind == "torch legacy":
        return read_legacy(path)
    if kind == "gguf":
        return read_gguf(path)[0]
    if kind is not None:
        raise CheckpointError("load", f"{os.fspath(path)} is {kind}, not a file of tensors that can be read")
    return None
