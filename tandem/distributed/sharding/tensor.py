"""Sharded tensors for users: making them, moving them, taking them apart."""

from __future__ import annotations

from tandem import _runtime, dtypes
from tandem.autograd.modes import enable_grad, no_grad
from tandem.distributed.collectives import broadcast
from tandem.distributed.sharding.layout import REPLICATE, Placements, has_partial
from tandem.distributed.sharding.mesh import Mesh
from tandem.distributed.sharding.moved import moved
from tandem.distributed.sharding.parts import check_member, local_shape, make, need_parts, parts_of
from tandem.distributed.sharding.placements import Partial, PartitionSpec, Shard, as_placements, as_spec
from tandem.errors import ShapeError, ShardingError
from tandem.nn.parameter import Parameter
from tandem.ops.define import FUNCTIONS

Tensor = _runtime.Tensor


class _DTensorType(type):
    def __instancecheck__(cls, tensor) -> bool:
        return parts_of(tensor) is not None


class DTensor(metaclass=_DTensorType):
    """What sharded tensors are instances of; they are Tensors.

    >>> isinstance(td.ones(2), td.distributed.DTensor)
    False
    """

    @staticmethod
    def from_local(local, device_mesh=None, placements=None, *, shape=None, **ignored):
        return from_local(local, device_mesh, placements, shape=shape)


class NamedSharding:
    """A mesh and a PartitionSpec: where a tensor lies."""

    def __init__(self, mesh: Mesh, spec: PartitionSpec):
        self.mesh, self.spec = mesh, spec

    def __eq__(self, other):
        return isinstance(other, NamedSharding) and (self.mesh, self.spec) == (other.mesh, other.spec)

    def __hash__(self):
        return hash((self.mesh, self.spec))

    def __repr__(self):
        return f"NamedSharding({self.mesh!r}, {self.spec!r})"


# -- moving


def _placed(tensor, mesh: Mesh, new: Placements, back: Placements | None = None, tag: int = 0):
    """A sharded tensor under other placements, recorded. back: what its gradient is brought to; None: what divides the tensor.
    tag: of its collectives (Note [Tags] in ops/collective.py)."""
    parts = need_parts(tensor, "redistribute")
    local = moved(parts.local, mesh, tensor.shape, parts.placements, new, tag)
    made = make(mesh, new, local, tensor.shape)
    if not (tensor.requires_grad and _runtime.grad_enabled()):
        return made
    old = parts.placements

    def backward(create_graph, g):
        found = need_parts(g, "redistribute").placements
        target = back or tuple(p if isinstance(p, Shard) else f for p, f in zip(old, found, strict=True))
        with enable_grad() if create_graph else no_grad():
            return g if target == found else _placed(g, mesh, target, tag=tag)

    _runtime.record_python(backward, "redistribute", [tensor], [made])
    return made


def redistribute(tensor, device_mesh: Mesh | None = None, placements=None, *, async_op: bool = False, **ignored):
    """The tensor under other placements: a list of them, or a PartitionSpec. Collectives where elements have to move."""
    parts = need_parts(tensor, "redistribute")
    mesh = device_mesh or parts.mesh
    if mesh != parts.mesh:
        raise ShardingError(
            "redistribute", f"the tensor is sharded over {parts.mesh!r}, not {mesh!r}",
            fix="use distribute_tensor(x.full_tensor(), mesh, placements)",
        )  # fmt: skip
    new = as_placements(placements, mesh, tensor.ndim, "redistribute")
    return tensor if new == parts.placements else _placed(tensor, mesh, new)


def with_sharding_constraint(tensor, sharding):
    """tensor under this sharding, and its gradient too: a NamedSharding, placements, or a PartitionSpec on the tensor's mesh."""
    parts = need_parts(tensor, "with_sharding_constraint")
    if isinstance(sharding, NamedSharding):
        if sharding.mesh != parts.mesh:
            raise ShardingError("with_sharding_constraint", f"the tensor is on {parts.mesh!r}, not {sharding.mesh!r}")
        sharding = sharding.spec
    new = as_placements(sharding, parts.mesh, tensor.ndim, "with_sharding_constraint")
    return _placed(tensor, parts.mesh, new, back=None if has_partial(new) else new)


# -- making them


def distribute_tensor(tensor, device_mesh: Mesh | NamedSharding, placements=None, *, src_data_rank: int | None = 0):
    """A sharded tensor with the elements of `tensor` on rank `src_data_rank` of the mesh, which sends them to the others; None: all
    ranks have the same, and nothing is sent.

    >>> td.distributed.init_process_group()
    >>> mesh = td.distributed.Mesh(1, "data")
    >>> x = td.distributed.distribute_tensor(td.ones(4, 2), mesh, [td.distributed.Shard(0)])
    >>> x.shape, x.placements
    ((4, 2), (Shard(0),))
    >>> td.distributed.destroy_process_group()
    """
    if isinstance(device_mesh, NamedSharding):
        device_mesh, placements = device_mesh.mesh, device_mesh.spec
    mesh = device_mesh
    check_member(mesh, "distribute_tensor")
    new = as_placements(placements, mesh, tensor.ndim, "distribute_tensor")
    if parts_of(tensor) is not None:
        return redistribute(tensor, mesh, new)
    whole = (REPLICATE,) * mesh.ndim
    with no_grad():
        data = tensor.detach().clone()
        if src_data_rank is not None:
            for group in mesh.groups:
                if group.size() > 1:
                    broadcast(data, group.ranks[src_data_rank], group)
        part = moved(data, mesh, data.shape, whole, new)
        made = make(mesh, new, data if part is data else part.clone(), data.shape)  # no view of the whole, which may go
    if isinstance(tensor, Parameter):
        return Parameter(made, tensor.requires_grad)
    made.requires_grad = tensor.requires_grad and tensor.is_leaf
    if tensor.requires_grad and not tensor.is_leaf:
        raise ShardingError(
            "distribute_tensor", "the tensor was computed by a recorded operator, and its history would end here",
            fix="use DTensor.from_local(x, mesh, [Replicate()]), which keeps it",
        )  # fmt: skip
    return made


def from_local(local, device_mesh: Mesh, placements=None, *, shape=None, run_check: bool = False):
    """The sharded tensor of which this rank has `local`. Gradients come back to it: of a part the part, of Replicate and Partial
    the whole.

    shape: of the whole; needed where parts along a divided axis are not equal
    """
    mesh = device_mesh
    check_member(mesh, "from_local")
    new = as_placements(placements, mesh, local.ndim, "from_local")
    if shape is None:
        sizes = list(local.shape)
        for n, p in reversed(list(zip(mesh.shape, new, strict=True))):
            if isinstance(p, Shard):
                sizes[p.dim] *= n
        shape = tuple(sizes)
    shape = tuple(shape)
    expected = local_shape(mesh, shape, new)
    if expected != tuple(local.shape):
        raise ShapeError(
            "from_local", f"of a tensor {shape} under {list(new)} this rank has {expected}, not {tuple(local.shape)}",
            fix="give shape=, the shape of the whole, and parts as td.distributed.local_shape(shape, mesh, placements) says",
        )  # fmt: skip
    return _from_local(local, mesh, new, shape, tuple(REPLICATE if isinstance(p, Partial) else p for p in new))


def _from_local(local, mesh: Mesh, new: Placements, shape, back: Placements, scale: float = 1.0):
    """back: the placements that the gradient is brought to; its part, times `scale`, is the gradient of `local`."""
    made = make(mesh, new, local.detach(), shape)
    if not (local.requires_grad and _runtime.grad_enabled()):
        return made

    def backward(create_graph, g):
        with enable_grad() if create_graph else no_grad():
            found = need_parts(g, "from_local")
            part = _to_local(g if found.placements == back else _placed(g, mesh, back), back)
            return part if scale == 1.0 else part * scale

    _runtime.record_python(backward, "from_local", [local], [made])
    return made


def _to_local(tensor, grad_placements: Placements):
    parts = need_parts(tensor, "to_local")
    local = parts.local.detach()
    if not (tensor.requires_grad and _runtime.grad_enabled()):
        return local
    mesh, shape = parts.mesh, tuple(tensor.shape)

    def backward(create_graph, g):
        with enable_grad() if create_graph else no_grad():
            return _from_local(g, mesh, grad_placements, shape, tuple(
                REPLICATE if isinstance(p, Partial) else p for p in grad_placements))  # fmt: skip

    local = local.view_as_self() if hasattr(local, "view_as_self") else local.clone()
    _runtime.record_python(backward, "to_local", [tensor], [local])
    return local


def to_local(tensor, *, grad_placements=None):
    """This rank's part, as a plain tensor.

    grad_placements: how the gradients that come back to the parts make up the gradient of the whole. It has to be said where the
    tensor is replicated: [Replicate()] if all ranks compute the same with it, [Partial()] if each computes a summand of the loss.
    """
    parts = need_parts(tensor, "to_local")
    if grad_placements is not None:
        back = as_placements(grad_placements, parts.mesh, tensor.ndim, "to_local")
    else:
        back = tuple(REPLICATE if isinstance(p, Partial) else p for p in parts.placements)
        recorded = tensor.requires_grad and _runtime.grad_enabled()
        if recorded and any(
            not isinstance(p, Shard) and n > 1 for p, n in zip(parts.placements, parts.mesh.shape, strict=True)
        ):
            raise ShardingError(
                "to_local", f"the tensor is {list(parts.placements)} and has a gradient: whether ranks do the same with it, or "
                "each a part of the work, is not known",
                fix="give grad_placements=[Replicate()] for the first, [Partial()] for the second; or x.detach().to_local()",
            )  # fmt: skip
    return _to_local(tensor, back)


def full_tensor(tensor, *, grad_placements=None):
    """All elements, as a plain tensor, on every rank; all ranks must ask for it.

    grad_placements: Replicate() unless given: all ranks compute the same with it. [Partial()]: each computes a summand of the loss.
    """
    parts = need_parts(tensor, "full_tensor")
    whole = (REPLICATE,) * parts.mesh.ndim
    back = whole if grad_placements is None else as_placements(grad_placements, parts.mesh, tensor.ndim, "full_tensor")
    made = tensor if parts.placements == whole else _placed(tensor, parts.mesh, whole)
    local = _to_local(made, back)
    return local.clone() if parts.placements == whole and not local.requires_grad else local


def gathered(tensor):
    """For readers of values (src/capture/capture.h)."""
    with no_grad():
        return full_tensor(tensor)


def leaf_gradient(leaf, g):
    """A gradient as a leaf keeps it: with the leaf's placements, a plain one for a plain leaf."""
    parts, found = parts_of(leaf), parts_of(g)
    if parts is None:
        return full_tensor(g)
    if found is None:
        raise ShardingError(
            "backward", f"a plain gradient {tuple(g.shape)} came to a sharded leaf", fix="use td.distributed.from_local"
        )
    back = tuple(REPLICATE if isinstance(p, Partial) else p for p in parts.placements)
    return g if found.placements == back else _placed(g, parts.mesh, back)


# -- creating


def _created(name: str):
    def create(*size, device_mesh: Mesh, placements=None, dtype=None, requires_grad: bool = False, **more):
        size = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
        check_member(device_mesh, name)
        size = tuple(size)
        new = as_placements(placements, device_mesh, len(size), name)
        dtype = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype)
        with no_grad():
            made = make(device_mesh, new, _runtime.empty(local_shape(device_mesh, size, new), dtype), size)
            if name != "empty":
                made = FUNCTIONS[f"{name}_like"](made, **more)
            made = made if parts_of(made).placements == new else _placed(made, device_mesh, new)
        made.requires_grad = requires_grad
        return made

    create.__name__ = create.__qualname__ = name
    create.__doc__ = f"td.{name} as a sharded tensor; random numbers are the same for every mesh and placement."
    return create


empty, zeros, ones, full, rand, randn = map(_created, ("empty", "zeros", "ones", "full", "rand", "randn"))


# -- attributes of tensors


def placements(self) -> Placements | None:
    """How the tensor lies along each axis of its mesh; None if it is not sharded."""
    parts = parts_of(self)
    return None if parts is None else parts.placements


def device_mesh(self) -> Mesh | None:
    """The mesh that the tensor is sharded over; None if it is not."""
    parts = parts_of(self)
    return None if parts is None else parts.mesh


def sharding(self) -> NamedSharding | None:
    """Mesh and PartitionSpec; None if it is not sharded, or partial."""
    parts = parts_of(self)
    spec = None if parts is None else as_spec(parts.placements, parts.mesh.axis_names, self.ndim)
    return None if spec is None else NamedSharding(parts.mesh, spec)


def attach(run_from_dispatch, add_gradients):
    """Connects the runtime with sharded tensors, calls on which go to run_from_dispatch (call.py)."""
    for name in ("placements", "device_mesh", "sharding"):
        setattr(Tensor, name, property(globals()[name]))
    for method in (redistribute, to_local, full_tensor):
        setattr(Tensor, method.__name__, method)
    _runtime.set_callback("sharded", run_from_dispatch)
    _runtime.set_callback("gather", gathered)
    _runtime.set_callback("sharded_grad", leaf_gradient)
    _runtime.set_callback("add_sharded", add_gradients)
