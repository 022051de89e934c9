"""Where values that live at different times lie in one block of memory."""

from __future__ import annotations

ALIGNMENT = 16


class Arena:
    """Blocks with the steps from the one that writes them first to the one that reads them last."""

    def __init__(self):
        self.blocks: list[tuple] = []  # (key, bytes, first, last)

    def add(self, key, size: int, first: int, last: int):
        self.blocks.append((key, -(-max(size, 1) // ALIGNMENT) * ALIGNMENT, first, last))

    def plan(self) -> tuple[dict, int]:
        """Offsets by key, and the size of all: the largest block first, each at the lowest place that is free while it lives."""
        offsets: dict = {}
        placed: list[tuple] = []  # (offset, end, first, last)
        for key, size, first, last in sorted(self.blocks, key=lambda b: (-b[1], b[2])):
            at = 0
            for begin, end, other_first, other_last in sorted(placed):
                if other_last < first or last < other_first:
                    continue
                if begin - at >= size:
                    break
                at = max(at, end)
            offsets[key] = at
            placed.append((at, at + size, first, last))
        return offsets, max((end for _, end, _, _ in placed), default=0)
