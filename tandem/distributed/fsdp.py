"""Fully sharded training: each rank holds a part of every parameter, of its gradient and of the optimiser's state.

Note [Fully sharded]
A parameter is divided by its rows: a rank has `rows[rank]` of them, and the module has that part under the parameter's own name.
While the module computes, the name stands for the whole parameter, put together by an all-gather; its gradient is a
reduce-scatter, so backward leaves each rank its part of the gradient. What backward needs of whole parameters it gathers again: the
module's forward is a checkpoint (tandem/transforms/checkpoint.py), which computes again what backward reads and no more, so of a
linear layer the all-gather and not the product. Layers of one shape are told apart: a parameter has a number, which goes with its
all-gathers and reduce-scatters, so ranks that use layers in different orders get an error (Note [Tags] in ops/collective.py).
"""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as F
from tandem import _runtime
from tandem.autograd.modes import is_grad_enabled, no_grad
from tandem.distributed.collectives import broadcast_coalesced
from tandem.distributed.ddp import model_tag
from tandem.distributed.group import ProcessGroup, group_of
from tandem.distributed.sharding.gathered import gathered
from tandem.distributed.sharding.mesh import Mesh
from tandem.distributed.sharding.parts import parts_of
from tandem.distributed.sharding.placements import Replicate, Shard
from tandem.distributed.sharding.tensor import distribute_tensor
from tandem.errors import DistributedError, ShapeError
from tandem.nn.module import Module
from tandem.nn.parameter import Parameter
from tandem.transforms.checkpoint import checkpoint

_STATE = "_fully_sharded"


class Division(NamedTuple):
    """How a parameter is divided among the ranks of a group."""

    group: ProcessGroup
    shape: tuple[int, ...]  # of the whole
    rows: tuple[int, ...]  # of each rank
    identity: int  # of the parameter, the same on all ranks

    @property
    def start(self) -> int:
        """The first row of this rank."""
        return sum(self.rows[: self.group.rank()])

    def whole(self, part):
        """The whole parameter, of the parts of all ranks."""
        beside = self.group.runs_beside(part)
        return F.all_gather(part, self.group.token, self.group.size(), _uneven(self.rows), self.identity, beside)

    def part(self, whole):
        return whole[self.start : self.start + self.rows[self.group.rank()]]


def _uneven(rows: tuple[int, ...]):
    return None if len(set(rows)) == 1 else rows


def divided(count: int, parts: int) -> tuple[int, ...]:
    """Rows for each of several ranks, as equal as they can be."""
    return tuple(count // parts + (r < count % parts) for r in range(parts))


class ShardedParameter(Parameter):
    """A rank's rows of a parameter; `division` says which."""

    division: Division | None = None

    def __new__(cls, data=None, requires_grad: bool = True, division: Division | None = None):
        made = super().__new__(cls, data, requires_grad)
        made.division = division
        return made

    def full_tensor(self):
        """The whole parameter; all ranks must ask for it."""
        with no_grad():
            return self.division.whole(self.detach())


class _Sharded(Module):
    """What a sharded module is besides its own class."""

    def forward(self, *args, **kwargs):
        state = self.__dict__[_STATE]
        if isinstance(state, _MeshState):
            return state.run(super().forward, args, kwargs)
        if not state.reshards or not is_grad_enabled():
            return state.run(super().forward, args, kwargs)
        forward, written = super().forward, []

        def run(*a, **k):
            with _OwnBuffers(self) as buffers:
                result = state.run(forward, a, k)
            written[:], values = buffers.written()
            return result, values

        result, values = checkpoint(run, *args, **kwargs)
        with no_grad():
            for (module, name), value in zip(written, values, strict=True):
                module._buffers[name].copy_(value)
        return result


class _OwnBuffers:
    """In this scope a module's buffers, and its children's, are copies: a checkpoint writes only what it has made. What it wrote
    into them, such as statistics of batches, comes out as results, which are written where the buffers lie afterwards."""

    def __init__(self, module: Module):
        self.places = [(part, name) for part in module.modules() for name, b in part._buffers.items() if b is not None]
        self.before = [part._buffers[name] for part, name in self.places]
        self.after: list = []

    def __enter__(self) -> _OwnBuffers:
        self.copies = [b.clone() for b in self.before]
        self.versions = [b._version for b in self.copies]
        for (part, name), copy in zip(self.places, self.copies, strict=True):
            part._buffers[name] = copy
        return self

    def __exit__(self, *exc):
        self.after = [part._buffers[name] for part, name in self.places]
        for (part, name), buffer in zip(self.places, self.before, strict=True):
            part._buffers[name] = buffer

    def written(self) -> tuple[list, list]:
        """(module and name, value) of those that were written or replaced."""
        changed = [i for i, b in enumerate(self.after) if b is not self.copies[i] or b._version != self.versions[i]]
        return [self.places[i] for i in changed], [self.after[i] for i in changed]


class _State:
    """The parameters that a module gathers when it is called: its own and those of its children that gather none themselves."""

    def __init__(self, module: Module, group: ProcessGroup, reshards: bool):
        self.group, self.reshards = group, reshards
        self.members: list[tuple[Module, str, ShardedParameter]] = []
        shared: dict[int, ShardedParameter] = {}
        for part in _own_modules(module):
            for name, p in list(part._parameters.items()):
                if p is None or isinstance(p, ShardedParameter):
                    continue
                if id(p) not in shared:
                    shared[id(p)] = self._shard(p)
                part._parameters[name] = shared[id(p)]
                self.members.append((part, name, shared[id(p)]))

    def _shard(self, p: Parameter) -> ShardedParameter:
        shape = tuple(p.shape)
        if not shape:
            raise ShapeError(
                "fully_shard", "a parameter without axes has no rows to divide", fix="give it the shape (1,)"
            )
        rows = divided(shape[0], self.group.size())
        division = Division(self.group, shape, rows, self.group.next_identity())
        with no_grad():
            made = ShardedParameter(division.part(p.detach()).clone(), p.requires_grad, division)
        if p.requires_grad:
            size = self.group.size()
            made.register_hook(lambda g: g / size)  # the average over ranks, not the sum
        return made

    def run(self, forward, args, kwargs):
        """forward with whole parameters under their names."""
        whole: dict[int, object] = {}
        for module, name, p in self.members:
            if id(p) not in whole:
                whole[id(p)] = p.division.whole(p)
            module.__dict__[name] = whole[id(p)]
        try:
            return forward(*args, **kwargs)
        finally:
            for module, name, _ in self.members:
                del module.__dict__[name]


class _MeshState:
    """The same on a mesh: parameters are sharded tensors, and their gradients those of the whole batch."""

    def __init__(self, module: Module, mesh: Mesh, axis: int, reshards: bool):
        self.axis, self.reshards = axis, reshards
        self.members: list[tuple[Module, str, Parameter]] = []
        self.identities: dict[int, int] = {}  # of each parameter, the same on all ranks
        for part in _own_modules(module):
            for name, p in part._parameters.items():
                if p is not None:
                    self._place(p, mesh, name)
                    if id(p) not in self.identities:
                        self.identities[id(p)] = mesh.groups[axis].next_identity()
                    self.members.append((part, name, p))
            for buffer in part._buffers.values():  # every rank's, as those of one process
                if buffer is not None and parts_of(buffer) is None:
                    with no_grad():
                        _runtime.set_data(buffer, distribute_tensor(buffer.detach(), mesh, [Replicate()] * mesh.ndim))

    def _place(self, p: Parameter, mesh: Mesh, name: str):
        if not p.shape:
            raise ShapeError("fully_shard", f"{name} has no axes to divide", fix="give it the shape (1,)")
        parts = parts_of(p)
        if parts is not None and parts.placements[self.axis] == Shard(0):
            return  # shared with another module
        placements = [Replicate()] * mesh.ndim if parts is None else list(parts.placements)
        placements[self.axis] = Shard(0)
        with no_grad():
            _runtime.set_data(p, distribute_tensor(p.detach(), mesh, placements))

    def run(self, forward, args, kwargs):
        """forward with whole parameters under their names."""
        whole: dict[int, tuple] = {}
        for module, name, p in self.members:
            if id(p) not in whole:
                placements = tuple(Replicate() if m == self.axis else q for m, q in enumerate(parts_of(p).placements))
                whole[id(p)] = gathered(p, placements, self.identities[id(p)])
            module.__dict__[name] = whole[id(p)][0]
        try:
            return forward(*args, **kwargs)
        finally:
            for module, name, _ in self.members:
                del module.__dict__[name]
            if self.reshards:
                for _, parts in whole.values():
                    parts.release()


def _own_modules(module: Module):
    yield module
    for child in module._modules.values():
        if child is not None and _STATE not in child.__dict__:
            yield from _own_modules(child)


def fully_shard(
    module: Module, *, mesh: Mesh | None = None, group: ProcessGroup | None = None, reshard_after_forward: bool = True
) -> Module:
    """Divides a module's parameters among the ranks of a group, in place, and gives the module. Its parameters keep their
    names; each rank's have some of their rows. Gradients are averaged over ranks. Make the optimiser afterwards.

    Call it for the layers of a model first and then for the model: each call makes one unit, whose parameters are gathered at once.

    mesh: parameters become sharded tensors, divided by their rows along its axis "data" (or its first one), besides what they are
        divided by already; inputs are sharded tensors, and gradients are those of the whole batch, not averages
    reshard_after_forward: whether whole parameters are let go after forward and gathered again for backward. The module's forward
        runs as td.checkpoint does it, so it may not read values of tensors; False where it does, or where memory does not matter

    >>> td.distributed.init_process_group()
    >>> model = td.distributed.fully_shard(td.nn.Linear(2, 3))
    >>> model(td.ones(1, 2)).sum().backward()
    >>> model.weight.grad.shape
    (3, 2)
    >>> td.distributed.destroy_process_group()
    """
    if _STATE in module.__dict__:
        raise DistributedError("fully_shard", "the module is fully sharded already")
    if mesh is None:
        module.__dict__[_STATE] = _of_group(module, group_of(group, "fully_shard"), reshard_after_forward)
    else:
        axis = mesh.axis_names.index("data") if "data" in mesh.axis_names else 0
        module.__dict__[_STATE] = _MeshState(module, mesh, axis, reshard_after_forward)
    kind = type(module)
    object.__setattr__(module, "__class__", type(kind.__name__, (_Sharded, kind), {"__module__": kind.__module__}))
    return module


def _of_group(module: Module, group: ProcessGroup | None, reshards: bool) -> _State:
    if group is None:
        raise DistributedError("fully_shard", "this rank is not in the group")
    with no_grad():
        own = [p for part in _own_modules(module) for p in part._parameters.values()]
        new, tag = [p for p in own if p is not None and not isinstance(p, ShardedParameter)], model_tag(module)
        broadcast_coalesced(new, group.ranks[0], group, tag=tag)
        broadcast_coalesced(list(module.buffers()), group.ranks[0], group, tag=tag)
    return _State(module, group, reshards)


def full_state_dict(module: Module) -> dict:
    """module.state_dict() with whole parameters, on every rank; all ranks must ask for it."""
    state = module.state_dict()
    for name, p in module.named_parameters(remove_duplicate=False):
        if (isinstance(p, ShardedParameter) or parts_of(p) is not None) and name in state:
            state[name] = p.detach().full_tensor() if parts_of(p) is not None else p.full_tensor()
    return state


def load_full_state_dict(module: Module, state: dict):
    """Gives a sharded module the values of whole parameters."""
    parts = dict(state)
    for name, p in module.named_parameters(remove_duplicate=False):
        if isinstance(p, ShardedParameter) and name in parts:
            if tuple(parts[name].shape) != p.division.shape:
                raise ShapeError(
                    "load_full_state_dict", f"{name} is {tuple(parts[name].shape)} and the parameter {p.division.shape}"
                )
            parts[name] = p.division.part(parts[name])
    module.load_state_dict(parts)
