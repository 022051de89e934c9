"""td.Size: the tuple of sizes that x.shape is."""

from tandem._runtime import Size

__all__ = ["Size"]
