"""Published weights by address, under PyTorch's path."""

from __future__ import annotations

from tandem.errors import UnsupportedError

__all__ = ["load_url"]


def load_url(
    url: str, model_dir=None, map_location=None, progress=True, check_hash=False, file_name=None, weights_only=False
):
    """Refuses: published files are pickles of PyTorch's classes, which td.load does not run."""
    raise UnsupportedError(
        "load_url",
        f"{url} is a file of PyTorch's",
        fix="save it as safetensors where PyTorch is installed, and use td.load: docs/from_pytorch.md, Weights",
    )
