"""What ranks of a group do together: collectives as operators of the graph.

Note [Order of collectives]
All ranks must run the same collectives in the same order. A collective is an effect: it is never removed, merged with an equal one
or run twice, and effects stay in the order in which the graph has them, which is that of the user's calls. Nothing in a graph says
which rank runs it, so that every rank has the same graph: the group is a number (`token`), and the rank is known to the thread that
runs it (src/collectives/communicator.h).

Note [Tags]
Two calls of one kind, dtype and shape look alike, and ranks that make them in different orders would mix what must not be mixed,
without an error. Who knows which tensors it means says so by `tag`, a number, which is compared with the rest of a call: the
parameter that is gathered and whose gradient is divided (distributed/fsdp.py), the parameters of a bucket or of a model (ddp.py).
src/collectives/call.h has the ranges.

Note [Beside]
A collective that says `beside` runs beside what is computed: over hosts by a thread of its own (src/collectives/background.h), on
devices on a stream of its own. Then it pays to begin it early and to wait for it late, which passes/prefetch_gathers.py and
codegen/overlap.py do. On the processors of one host it does not, as ranks use them all. All ranks say the same.

Gradients are those of the sum of all ranks' losses: what one rank's result owes to another rank's operand flows back by a
collective.
"""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime
from tandem.errors import AutogradError, DTypeError, ShapeError
from tandem.graph.ir import Type, Value
from tandem.ops import rules
from tandem.ops.define import LibraryOp, Role, inplace, op, register
from tandem.ops.prepare import show_shape

# As in src/collectives/communicator.h.
_KINDS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce_to",
    "all_to_all",
    "barrier",
    "send",
    "recv",
)
REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")


class Collective(LibraryOp):
    """token: the group; size: its number of ranks."""

    routine = "collective"
    cuda_library = "nccl"
    effect = True
    takes_complex = True
    holomorphic = False
    beside = False  # Note [Beside]
    token: int
    size: int

    def _ints(self, reduction: str = "sum", root: int = -1, tag: int = 0, sends=(), takes=()):
        numbers = _KINDS.index(self.name), self.token, self.size, REDUCTIONS.index(reduction), root, tag
        return (*numbers, len(sends), *sends, len(takes), *takes), ()

    def rule(self, *types: Type):
        rules.allowed(self, self.size >= 1 and self.token >= 0, f"{self.size} ranks of group {self.token}")
        reduction, root = getattr(self, "reduction", "sum"), getattr(self, "root", 0)
        rules.one_of(self, "reduction", reduction, REDUCTIONS)
        rules.allowed(self, 0 <= root < self.size, f"root is {root}, of {self.size} ranks")
        for name in ("rows", "sends", "receives"):
            rules.sizes(self, name, getattr(self, name, ()))

    def _rows(self, x: Type):
        if not x.shape:
            raise ShapeError(self, "a tensor without axes has no rows to divide among ranks", fix="use x.reshape(1)")
        return x.shape[0]


def _check_reduction(op: Collective, dtype):
    if not _runtime.reduction_is_defined(dtype.code, REDUCTIONS.index(op.reduction)):
        fix = "convert to a floating type first" if op.reduction == "avg" else None
        raise DTypeError(op, f"there is no reduction {op.reduction!r} of {dtype}", fix=fix)


@register
class AllReduce(Collective):
    """Each tensor reduced over all ranks; all get the same bits. `tag`: Note [Tags]."""

    name = "all_reduce"
    overwrites = True
    reduction: str
    tag: int = 0
    beside: bool = False

    def infer(self, *tensors: Type):
        for t in tensors:
            _check_reduction(self, t.dtype)
            if t.dtype is not tensors[0].dtype:
                raise DTypeError(
                    self, f"tensors are {tensors[0].dtype} and {t.dtype}; those of one call must have one dtype"
                )
        return tensors

    def attributes(self, *tensors):
        return self._ints(self.reduction, tag=self.tag)

    def grad(self, g, *tensors, out, vjp):
        gs, outs = (g, out) if isinstance(g, tuple) else ((g,), (out,))
        if self.reduction in ("sum", "avg"):
            made = type(self)(self.token, self.size, self.reduction, self.tag, self.beside)(*gs)
            return made if isinstance(made, tuple) else (made,)
        return tuple(self._grad_one(*one, vjp) for one in zip(gs, tensors, outs, strict=True))

    def _grad_one(self, g: Value, x: Value, out: Value, vjp) -> Value:
        total = AllReduce(self.token, self.size, "sum")(g)
        if self.reduction == "product":
            return _product_grad(self, total, x, vjp)
        return _extreme_grad(self, total, x, out)


@register
class AllGather(Collective):
    """The rows of all ranks, one rank's after the other's. `rows`: how many each has, where they differ. `tag`: Note [Tags]."""

    name = "all_gather"
    rows: tuple = ()
    tag: object = 0  # Dim
    beside: bool = False

    def infer(self, x: Type) -> Type:
        n = sum(self.rows) if self.rows else self._rows(x) * self.size
        return x.with_shape((n, *x.shape[1:]))

    def attributes(self, x):
        return self._ints(tag=self.tag, takes=self.rows)

    def grad(self, g, x):
        return ReduceScatter(self.token, self.size, "sum", x.shape[0], self.rows, self.tag, self.beside)(g)


@register
class ReduceScatter(Collective):
    """Rows reduced over all ranks, of which each rank gets `count`. `rows`: how many each gets, where they differ. `tag`: Note
    [Tags]."""

    name = "reduce_scatter"
    reduction: str
    count: object  # Dim
    rows: tuple = ()
    tag: object = 0  # Dim
    beside: bool = False

    def infer(self, x: Type) -> Type:
        _check_reduction(self, x.dtype)
        wanted = sum(self.rows) if self.rows else self.count * self.size
        if self._rows(x) != wanted:
            raise ShapeError(
                self, f"the tensor is {show_shape(x.shape)} and {self.size} ranks get {self.rows or self.count} rows each",
                fix="give as many rows as all ranks get together",
            )  # fmt: skip
        return x.with_shape((self.count, *x.shape[1:]))

    def attributes(self, x):
        return self._ints(self.reduction, tag=self.tag, takes=self.rows)

    def grad(self, g, x, *, out, vjp):
        total = AllGather(self.token, self.size, self.rows, self.tag, self.beside)(g)
        if self.reduction == "sum":
            return total
        if self.reduction == "avg":
            return F.mul(total, 1 / self.size)
        if self.reduction == "product":
            return _product_grad(self, total, x, vjp)
        return _extreme_grad(self, total, x, AllGather(self.token, self.size, self.rows, self.tag)(out))


def _extreme_grad(op: Collective, total: Value, x: Value, out: Value) -> Value:
    """Ranks that have the extremum share its gradient."""
    if op.reduction not in ("min", "max"):
        raise AutogradError(op, f"the reduction {op.reduction!r} has no gradient")
    hit = F.Cast(total.dtype)(F.equal(x, out))
    return F.div(F.mul(total, hit), AllReduce(op.token, op.size, "sum")(hit))


def _product_grad(op: Collective, total: Value, x: Value, vjp) -> Value:
    """total times the product of what the other ranks have: row by row of all ranks' tensors, of which this rank keeps its own."""
    rows = AllGather(op.token, op.size)(F.reshape(x, (1, *x.shape)))
    (grads,) = vjp(lambda every: F.prod(every, 0), [rows], [total])
    mine = ReduceScatter(op.token, op.size, "avg", 1)(grads)  # all ranks have the same rows
    return F.reshape(mine, x.shape)


@register
class Broadcast(Collective):
    """The tensors of rank `root`, on all ranks. `tag`: Note [Tags]."""

    name = "broadcast"
    overwrites = True
    root: int
    tag: int = 0

    def infer(self, *tensors: Type):
        return tensors

    def attributes(self, *tensors):
        return self._ints(root=self.root, tag=self.tag)

    def grad(self, g, *tensors):
        gs = g if isinstance(g, tuple) else (g,)
        return tuple(ReduceTo(self.token, self.size, "sum", self.root)(one) for one in gs)


@register
class ReduceTo(Collective):
    """A tensor reduced over all ranks, on rank `root`; zeros on the others."""

    name = "reduce_to"
    reduction: str
    root: int

    def infer(self, x: Type) -> Type:
        _check_reduction(self, x.dtype)
        return x

    def attributes(self, x):
        return self._ints(self.reduction, self.root)

    def grad(self, g, x):
        if self.reduction not in ("sum", "avg"):
            raise AutogradError(
                self, f"the reduction {self.reduction!r} to one rank has no gradient", fix="use all_reduce"
            )
        total = Broadcast(self.token, self.size, self.root)(g)
        return total if self.reduction == "sum" else F.mul(total, 1 / self.size)


@register
class AllToAll(Collective):
    """Each rank's rows divided among all. `sends`, `receives`: rows for each rank and from each, where they differ."""

    name = "all_to_all"
    sends: tuple = ()
    receives: tuple = ()

    def infer(self, x: Type) -> Type:
        rows = self._rows(x)
        if not self.sends:
            if rows % self.size != 0:
                raise ShapeError(
                    self, f"the tensor is {show_shape(x.shape)}; its rows cannot be divided equally among {self.size} ranks",
                    fix="give input_split_sizes and output_split_sizes",
                )  # fmt: skip
            return x
        if sum(self.sends) != rows:
            raise ShapeError(self, f"the tensor is {show_shape(x.shape)} and input_split_sizes are {list(self.sends)}")
        return x.with_shape((sum(self.receives), *x.shape[1:]))

    def attributes(self, x):
        return self._ints(sends=self.sends, takes=self.receives)

    def grad(self, g, x):
        return AllToAll(self.token, self.size, self.receives, self.sends)(g)


@register
class Barrier(Collective):
    """Its operand, once all ranks are here."""

    name = "barrier"

    def infer(self, x: Type) -> Type:
        return x

    def attributes(self, x):
        return self._ints()

    def grad(self, g, x):
        return g


@register
class Send(Collective):
    """Sends a tensor to rank `peer`; gives a zero, through which its gradient comes back from there."""

    name = "send"
    peer: int
    tag: int

    def infer(self, x: Type) -> Type:
        return Type(x.dtype, ())

    def attributes(self, x):
        return self._ints(root=self.peer, tag=self.tag)

    def grad(self, g, x):
        return Receive(self.token, self.size, self.peer, self.tag)(x)


@register
class Receive(Collective):
    """A tensor like x from rank `peer`."""

    name = "recv"
    overwrites = True
    peer: int
    tag: int

    def infer(self, x: Type) -> Type:
        return x

    def attributes(self, x):
        return self._ints(root=self.peer, tag=self.tag)

    def grad(self, g, x):
        return F.expand(Send(self.token, self.size, self.peer, self.tag)(g), x.shape)


# -- operator functions; tandem/distributed has what users call


@op(name="all_reduce", internal=True)
def all_reduce(x: Tensor, token=0, size=1, reduction="sum"):
    return AllReduce(token, size, reduction)(x)


all_reduce_ = inplace(all_reduce)


@op(name="all_reduce_coalesced", internal=True)
def all_reduce_coalesced(tensors: Tensors, token=0, size=1, reduction="sum", tag=0, beside=False):
    made = AllReduce(token, size, reduction, tag, beside)(*tensors)
    return made if isinstance(made, tuple) else (made,)


@op(name="broadcast", internal=True)
def broadcast(x: Tensor, token=0, size=1, root=0):
    return Broadcast(token, size, root)(x)


broadcast_ = inplace(broadcast)


@op(name="broadcast_coalesced", internal=True)
def broadcast_coalesced(tensors: Tensors, token=0, size=1, root=0, tag=0):
    made = Broadcast(token, size, root, tag)(*tensors)
    return made if isinstance(made, tuple) else (made,)


@op(name="reduce_to", internal=True)
def reduce_to(x: Tensor, token=0, size=1, reduction="sum", root=0):
    return ReduceTo(token, size, reduction, root)(x)


@op(name="all_gather", internal=True)
def all_gather(x: Tensor, token=0, size=1, rows: Ints | None = None, tag: Int = 0, beside=False):
    return AllGather(token, size, tuple(rows or ()), tag, beside)(x)


@op(name="reduce_scatter", internal=True)
def reduce_scatter(x: Tensor, token=0, size=1, reduction="sum", count: Int | None = None, rows: Ints | None = None):
    if count is None:
        op = ReduceScatter(token, size, reduction, 0)
        if op._rows(x.type) % size != 0:
            raise ShapeError(
                op, f"the tensor is {show_shape(x.shape)}; its rows cannot be divided equally among {size} ranks",
                fix="pad it, or say how many rows each rank gets: rows=[...]",
            )  # fmt: skip
        count = x.shape[0] // size
    return ReduceScatter(token, size, reduction, count, tuple(rows or ()))(x)


@op(name="all_to_all", internal=True)
def all_to_all(x: Tensor, token=0, size=1, sends: Ints | None = None, takes: Ints | None = None):
    return AllToAll(token, size, tuple(sends or ()), tuple(takes or ()))(x)


@op(name="barrier", internal=True)
def barrier(x: Tensor, token=0, size=1):
    return Barrier(token, size)(x)


@op(name="send", internal=True)
def send(x: Tensor, token=0, size=1, peer=0, tag=0):
    return Send(token, size, peer, tag)(x)


@op(name="recv", internal=True)
def recv(x: Tensor, token=0, size=1, peer=0, tag=0):
    return Receive(token, size, peer, tag)(x)


recv_ = inplace(recv)

for _function in (
    all_reduce, all_reduce_, all_reduce_coalesced, broadcast, broadcast_, broadcast_coalesced, reduce_to, all_gather,
    reduce_scatter, all_to_all, barrier, send, recv, recv_,
):  # fmt: skip
    _function.role = Role(effect=True)
