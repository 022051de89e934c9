"""The primitives that nodes may have, by name: `register` (tandem/ops/define.py) enters them, files of graphs name them."""

from __future__ import annotations

PRIMITIVES: dict[str, type] = {}
