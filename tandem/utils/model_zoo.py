"""Published weights by address, under PyTorch's path."""

from __future__ import annotations

from tandem.errors import UnsupportedError

__all__ = ["load_url"]

try:
    from tqdm import tqdm  # packages that show progress ask for it here
except ImportError:

    class tqdm:
        """tqdm's bar without the bar, where the package is missing."""

        def __init__(self, iterable=(), **settings):
            self.iterable, self.n, self.total = iterable, 0, settings.get("total")

        def __iter__(self):
            return iter(self.iterable)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def update(self, n=1):
            self.n += n

        def close(self):
            pass


def load_url(
    url: str, model_dir=None, map_location=None, progress=True, check_hash=False, file_name=None, weights_only=False
):
    """Refuses: published files are pickles of PyTorch's classes, which td.load does not run."""
    raise UnsupportedError(
        "load_url",
        f"{url} is a file of PyTorch's",
        fix="save it as safetensors where PyTorch is installed, and use td.load: docs/from_pytorch.md, Weights",
    )
