"""Which elements of a sharded tensor a rank has."""

from __future__ import annotations

from tandem.distributed.sharding.placements import Partial, Placement, Replicate, Shard

Placements = tuple[Placement, ...]
REPLICATE = Replicate()


def span(size: int, parts: int, index: int) -> tuple[int, int]:
    """(start, count) of one of several parts that are as equal as they can be."""
    each, more = divmod(size, parts)
    return index * each + min(index, more), each + (index < more)


def replicated(placements: Placements) -> bool:
    return all(p == REPLICATE for p in placements)


class Grid:
    """The shape of a mesh and this rank's place in it: what shapes of parts depend on."""

    def __init__(self, shape: tuple[int, ...], coordinate: tuple[int, ...], tokens: tuple[int, ...]):
        self.shape, self.coordinate, self.tokens = shape, coordinate, tokens

    def spans(self, shape, placements: Placements, before: int | None = None) -> list[tuple[int, int]]:
        """(start, count) along each axis of the tensor, of this rank; by the first `before` axes of the mesh only."""
        made = [(0, n) for n in shape]
        for n, c, p in list(zip(self.shape, self.coordinate, placements, strict=True))[:before]:
            if isinstance(p, Shard):
                start, count = made[p.dim]
                first, part = span(count, n, c)
                made[p.dim] = (start + first, part)
        return made

    def local_shape(self, shape, placements: Placements) -> tuple[int, ...]:
        return tuple(count for _, count in self.spans(shape, placements))

    def starts(self, shape, placements: Placements) -> tuple[int, ...]:
        return tuple(start for start, _ in self.spans(shape, placements))

    def divides(self, size: int, axes) -> bool:
        """Whether the mesh axes divide a size into equal parts."""
        for m in axes:
            if size % self.shape[m]:
                return False
            size //= self.shape[m]
        return True


def grid_of(mesh) -> Grid:
    return Grid(mesh.shape, mesh.coordinate, tuple(g.token for g in mesh.groups))


def has_partial(placements: Placements) -> bool:
    return any(isinstance(p, Partial) for p in placements)


def without_partial(placements: Placements) -> Placements:
    return tuple(REPLICATE if isinstance(p, Partial) else p for p in placements)
