"""Placements: how a tensor lies on the ranks along one axis of a mesh."""

from __future__ import annotations

from typing import NamedTuple

from tandem.errors import ShapeError, ValueRangeError

REDUCTIONS = ("sum", "avg", "product", "min", "max")


class Placement:
    """Shard, Replicate or Partial."""

    def is_shard(self, dim: int | None = None) -> bool:
        return isinstance(self, Shard) and (dim is None or self.dim == dim)

    def is_replicate(self) -> bool:
        return isinstance(self, Replicate)

    def is_partial(self) -> bool:
        return isinstance(self, Partial)


class _Shard(NamedTuple):
    dim: int


class Shard(_Shard, Placement):
    """The tensor's axis `dim` is divided among the ranks, as equally as it goes.

    >>> td.distributed.Shard(0)
    Shard(0)
    """

    __slots__ = ()

    def __repr__(self):
        return f"Shard({self.dim})"


class _Replicate(NamedTuple):
    pass


class Replicate(_Replicate, Placement):
    """Every rank has all of it.

    >>> td.distributed.Replicate()
    Replicate()
    """

    __slots__ = ()

    def __repr__(self):
        return "Replicate()"

    def __eq__(self, other):  # two empty tuples of other classes are no equals
        return isinstance(other, Replicate)

    def __ne__(self, other):
        return not isinstance(other, Replicate)

    def __hash__(self):
        return 7


class _Partial(NamedTuple):
    reduce_op: str = "sum"


class Partial(_Partial, Placement):
    """Ranks have tensors whose sum (or mean, product, minimum, maximum) is the tensor.

    >>> td.distributed.Partial()
    Partial(sum)
    """

    __slots__ = ()

    def __new__(cls, reduce_op: str = "sum"):
        name = getattr(reduce_op, "name", reduce_op)
        name = name.lower() if isinstance(name, str) else name
        if name not in REDUCTIONS:
            raise ValueRangeError("Partial", f"reduce_op={reduce_op!r} must be one of {', '.join(REDUCTIONS)}")
        return super().__new__(cls, name)

    def __repr__(self):
        return f"Partial({self.reduce_op})"


class PartitionSpec(tuple):
    """For each axis of a tensor the name of the mesh axis that divides it, a tuple of names, or None; axes left out are whole.

    >>> td.distributed.PartitionSpec("data", None)
    PartitionSpec('data', None)
    """

    def __new__(cls, *entries):
        return super().__new__(cls, entries)

    def __repr__(self):
        return f"PartitionSpec({', '.join(map(repr, self))})"


def _from_spec(spec: PartitionSpec, mesh, ndim: int, op: str) -> tuple[Placement, ...]:
    if len(spec) > ndim:
        raise ShapeError(op, f"{spec!r} has {len(spec)} entries for a tensor with {ndim} axes")
    placements: list[Placement] = [Replicate()] * mesh.ndim
    for dim, entry in enumerate(spec):
        names = () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
        positions = [mesh.axis(name, op) for name in names]
        if positions != sorted(positions):
            raise ValueRangeError(
                op, f"axis {dim} is divided by {names}; mesh axes divide in the order {mesh.axis_names}"
            )
        for m in positions:
            if placements[m] != Replicate():
                raise ValueRangeError(op, f"{spec!r} names the mesh axis {mesh.axis_names[m]!r} twice")
            placements[m] = Shard(dim)
    return tuple(placements)


def as_placements(given, mesh, ndim: int, op: str) -> tuple[Placement, ...]:
    """One placement for each axis of the mesh, from what a user gives: a list of them, one, a PartitionSpec, or nothing."""
    if given is None:
        return (Replicate(),) * mesh.ndim
    if isinstance(given, PartitionSpec):
        return _from_spec(given, mesh, ndim, op)
    if isinstance(given, Placement):
        given = [given]
    given = list(given)
    if len(given) != mesh.ndim:
        raise ValueRangeError(
            op, f"{len(given)} placements {given} for a mesh with {mesh.ndim} axes {mesh.axis_names}",
            fix="give one placement for each axis of the mesh",
        )  # fmt: skip
    made = []
    for p in given:
        if not isinstance(p, Placement):
            raise ValueRangeError(op, f"{p!r} is no placement", fix="give Shard(dim), Replicate() or Partial()")
        if isinstance(p, Shard):
            if not -ndim <= p.dim < ndim:
                raise ShapeError(op, f"{p!r} of a tensor with {ndim} axes")
            p = Shard(p.dim % ndim)
        made.append(p)
    return tuple(made)


def as_spec(placements, names, ndim: int) -> PartitionSpec | None:
    """The PartitionSpec that says the same, None where there is none (Partial)."""
    entries: list = [()] * ndim
    for name, p in zip(names, placements, strict=True):
        if isinstance(p, Partial):
            return None
        if isinstance(p, Shard):
            entries[p.dim] = (*entries[p.dim], name)
    return PartitionSpec(*(None if not e else e[0] if len(e) == 1 else e for e in entries))
