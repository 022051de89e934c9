"""Meshes: ranks in a grid whose axes have names."""

from __future__ import annotations

import itertools
import math

from tandem.distributed.group import ProcessGroup, new_group, this_rank
from tandem.errors import DistributedError, ShapeError, ValueRangeError


def _nested(ranks, shape) -> object:
    if len(shape) == 1:
        return list(ranks)
    step = len(ranks) // shape[0]
    return [_nested(ranks[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


class Mesh:
    """Ranks in a grid: `shape` says how many there are along each axis, `axis_names` what the axes are called.

    All ranks of the process group must make it, also those that are not in it. ranks: which of them, in row-major order; all
    unless given.

    >>> td.distributed.init_process_group()
    >>> mesh = td.distributed.Mesh((1, 1), ("data", "model"))
    >>> mesh
    Mesh((1, 1), ('data', 'model'))
    >>> mesh.size("model")
    1
    >>> td.distributed.destroy_process_group()
    """

    def __init__(self, shape, axis_names=None, *, ranks=None):
        rank = this_rank("Mesh")
        shape = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
        names = (axis_names,) if isinstance(axis_names, str) else axis_names
        names = tuple(names) if names is not None else tuple(f"axis{i}" for i in range(len(shape)))
        ranks = tuple(range(math.prod(shape))) if ranks is None else tuple(int(r) for r in ranks)
        if len(names) != len(shape) or len(set(names)) != len(names) or not shape:
            raise ValueRangeError("Mesh", f"axis_names {names} must be one different name for each axis of {shape}")
        if len(ranks) != math.prod(shape) or any(n < 1 for n in shape):
            raise ShapeError("Mesh", f"a mesh of shape {shape} has {math.prod(shape)} ranks, not {len(ranks)}")
        if list(ranks) != sorted(set(ranks)) or ranks[0] < 0 or ranks[-1] >= rank.size:
            raise ValueRangeError(
                "Mesh", f"a mesh of shape {shape} needs ranks {list(ranks)}, and there are {rank.size}",
                fix="start as many ranks, or give ranks= in ascending order",
            )  # fmt: skip
        self.shape, self.axis_names, self.ranks = shape, names, ranks
        self._member = rank
        self.coordinate = self._coordinate_of(rank.rank)
        self.groups: tuple[ProcessGroup | None, ...] = _groups(rank, self)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def mesh_dim_names(self) -> tuple[str, ...]:
        return self.axis_names

    @property
    def mesh(self):
        """The ranks, as nested lists."""
        return _nested(self.ranks, self.shape)

    def _coordinate_of(self, rank: int) -> tuple[int, ...] | None:
        if rank not in self.ranks:
            return None
        index, made = self.ranks.index(rank), []
        for n in reversed(self.shape):
            index, c = divmod(index, n)
            made.append(c)
        return tuple(reversed(made))

    def get_coordinate(self) -> tuple[int, ...] | None:
        """This rank's place; None if it is not in the mesh."""
        return self.coordinate

    def axis(self, name, op: str = "Mesh") -> int:
        """The number of an axis, given by name or number."""
        if isinstance(name, int) and -self.ndim <= name < self.ndim:
            return name % self.ndim
        if name in self.axis_names:
            return self.axis_names.index(name)
        raise ValueRangeError(op, f"the mesh has no axis {name!r}; its axes are {self.axis_names}")

    def size(self, axis=None) -> int:
        return math.prod(self.shape) if axis is None else self.shape[self.axis(axis)]

    def get_group(self, axis=0) -> ProcessGroup:
        """The group of the ranks that differ from this one in their place along an axis only."""
        group = self.groups[self.axis(axis)]
        if group is None:
            raise DistributedError("get_group", f"rank {self._member.rank} is not in {self!r}")
        return group

    def get_local_rank(self, axis=0) -> int:
        """This rank's place along an axis."""
        return self.get_group(axis).rank()

    def __getitem__(self, names) -> Mesh:
        """The mesh of some of the axes that this rank is in: mesh["model"]."""
        names = (names,) if isinstance(names, str) else tuple(names)
        axes = [self.axis(n) for n in names]
        if self.coordinate is None:
            raise DistributedError("Mesh", f"rank {self._member.rank} is not in {self!r}")
        if axes != sorted(set(axes)):
            raise ValueRangeError("Mesh", f"axes {names} must be different ones in the order {self.axis_names}")
        part = object.__new__(Mesh)
        part.shape = tuple(self.shape[a] for a in axes)
        part.axis_names = tuple(self.axis_names[a] for a in axes)
        spans = [range(n) if a in axes else [self.coordinate[a]] for a, n in enumerate(self.shape)]
        part.ranks = tuple(self.ranks[self._index(c)] for c in itertools.product(*spans))
        part._member = self._member
        part.coordinate = tuple(self.coordinate[a] for a in axes)
        part.groups = tuple(self.groups[a] for a in axes)
        return part

    def _index(self, coordinate) -> int:
        index = 0
        for n, c in zip(self.shape, coordinate, strict=True):
            index = index * n + c
        return index

    def __eq__(self, other):
        if not isinstance(other, Mesh):
            return NotImplemented
        mine = (self.ranks, self.shape, self.axis_names, self._member)
        return self is other or mine == (other.ranks, other.shape, other.axis_names, other._member)

    def __hash__(self):
        return hash((self.ranks, self.shape, self.axis_names))

    def __repr__(self):
        return f"Mesh({self.shape}, {self.axis_names})"


def _groups(rank, mesh: Mesh) -> tuple[ProcessGroup | None, ...]:
    """This rank's group along each axis. Meshes of the same ranks and shape share them."""
    known = rank.__dict__.setdefault("meshes", {})
    found = known.get((mesh.ranks, mesh.shape))
    if found is not None:
        return found
    made = []
    for a, n in enumerate(mesh.shape):
        mine = None
        for rest in itertools.product(*(range(m) if b != a else [None] for b, m in enumerate(mesh.shape))):
            line = [mesh.ranks[mesh._index([i if c is None else c for c in rest])] for i in range(n)]
            group = rank.world if line == list(range(rank.size)) else new_group(line)
            if rank.rank in line:
                mine = group
        made.append(mine)
    known[mesh.ranks, mesh.shape] = tuple(made)
    return tuple(made)


DeviceMesh = Mesh


def init_device_mesh(device_type: str, mesh_shape, *, mesh_dim_names=None) -> Mesh:
    """PyTorch's name for Mesh(mesh_shape, mesh_dim_names). device_type: "cpu" """
    if device_type != "cpu":
        raise ValueRangeError("init_device_mesh", f"device_type={device_type!r}: ranks share tensors of the CPU here")
    return Mesh(mesh_shape, mesh_dim_names)
