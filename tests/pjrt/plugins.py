"""Where the stand-in of a plugin is."""

from __future__ import annotations

import pathlib

SOURCE = pathlib.Path(__file__).parent / "stand_in.c"
