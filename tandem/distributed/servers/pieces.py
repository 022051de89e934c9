"""Parameters divided over servers, so that each has about as many bytes."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Piece:
    """Rows [begin, end) of a parameter, all of it where `whole`."""

    parameter: int
    begin: int
    end: int
    whole: bool


def divide(sizes: list[tuple[int, int]], servers: int, splits) -> list[list[Piece]]:
    """Pieces of each server. sizes: (rows, bytes) of each parameter; splits(i): whether parameter i may be divided.

    Parameters that are larger than an equal share are cut into runs of rows; then the largest piece goes to the server that has
    least. The same sizes always give the same division.
    """
    total = sum(n for _, n in sizes)
    share = max(1, -(-total // servers))
    pieces: list[tuple[int, Piece]] = []
    for i, (rows, size) in enumerate(sizes):
        parts = min(servers, rows, -(-size // share)) if rows > 1 and size > share and splits(i) else 1
        for k in range(parts):
            begin, end = rows * k // parts, rows * (k + 1) // parts
            pieces.append((size * (end - begin) // max(rows, 1), Piece(i, begin, end, parts == 1)))
    found: list[list[Piece]] = [[] for _ in range(servers)]
    loads = [0] * servers
    for size, piece in sorted(pieces, key=lambda p: -p[0]):
        least = min(range(servers), key=lambda s: loads[s])
        loads[least] += size
        found[least].append(piece)
    return [sorted(p, key=lambda x: (x.parameter, x.begin)) for p in found]
