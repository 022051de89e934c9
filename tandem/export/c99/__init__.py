"""Functions and modules as C99 that stands by itself: see `c`."""

from tandem.export.c99.export import CProgram, c

__all__ = ["CProgram", "c"]
