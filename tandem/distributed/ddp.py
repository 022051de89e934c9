"""Data parallel training: the same model on every rank, each with its part of the batch, and gradients averaged over ranks.

Note [Data parallel]
A model is made data parallel as it is: it keeps its class, its parameters and their names. Gradients are averaged in buckets, each
at the cost of one collective, which begins as soon as backward has made the last gradient of the bucket and the buckets before it
have begun: so all ranks have one order, and what is left when backward ends comes then. A reduction is a call like any other, so in
a compiled training step it becomes part of the program, at that place. On devices it runs beside the kernels of the rest of
backward; over hosts, in the background, also in a compiled step (Note [Overlap] in codegen/overlap.py). On the processors of one
host nothing is gained by that, as ranks use them all.

Note [Buckets]
Where reductions run beside backward, the size of buckets follows from the link, whose latency L and bandwidth B are measured when a
model is made data parallel. Of W bytes of gradients in buckets of S, W / S latencies are paid, and the last bucket, which takes
S / B, begins when backward is over. The sum of both is least for S = sqrt(W L B). How long backward takes does not matter: where it
is slow, latencies are hidden, and where it is quick, all of W / B is waited for in any case. So programs that serve batches of any
size have one size of buckets, and ranks whose batches differ have the same one.
"""

from __future__ import annotations

import contextlib
import zlib

import tandem.ops as F
from tandem import _runtime
from tandem.autograd.backward import when_done
from tandem.autograd.modes import is_grad_enabled, no_grad
from tandem.distributed.collectives import broadcast_coalesced
from tandem.distributed.functional import MOST_TENSORS
from tandem.distributed.group import ProcessGroup, group_of, this_rank
from tandem.distributed.links import link_of
from tandem.distributed.work import run as run_work
from tandem.errors import DistributedError, UnsupportedError
from tandem.nn.module import Module
from tandem.tensors.constructors import tensor

_SOME_USED, _MODEL, _UNNAMED = 1 << 32, 1 << 33, 1 << 34  # ranges of tags, as in src/collectives/call.h
FIXED = (
    25 * 2**20
)  # bytes of a bucket where nothing runs beside, and where new ranks come that have not measured the link
_STATE = "_data_parallel"  # where a module keeps it, among its attributes


class _Reducer:
    """Averages the gradients of a module's parameters."""

    def __init__(self, module: Module, group: ProcessGroup, bucket_bytes: float, unused: bool, broadcast_buffers: bool):
        self.module, self.group, self.bucket_bytes = module, group, bucket_bytes
        self.unused, self.broadcast_buffers = unused, broadcast_buffers
        self.synchronises = True
        self.joined = False
        self._waiting = False  # whether the end of a backward pass is awaited
        self._plan: list[list] = []  # of this backward pass: buckets of parameters that may be reduced before it ends
        self._missing: list[int] = []  # how many gradients each of them still waits for
        self._bucket: dict[int, int] = {}  # of each parameter
        self._begun = 0  # buckets
        self._works: list[tuple] = []  # (handle, parameters, results) of those in the background
        self.handles = [
            module.register_forward_pre_hook(_before_forward),
            *(
                p.register_post_accumulate_grad_hook(self._after_gradient)
                for p in module.parameters()
                if p.requires_grad
            ),
        ]

    def __reduce__(self):  # a copy of the module is not data parallel
        return type(None), ()

    def __deepcopy__(self, memo):
        return None

    def synchronise_parameters(self):
        if this_rank("data_parallel").is_new:  # it gets the others' with the rest of their state (elastic.py)
            return
        with no_grad():
            tensors = [*self.module.parameters(), *self.module.buffers()]
            broadcast_coalesced(tensors, self.group.ranks[0], self.group, tag=model_tag(self.module))
            for (
                p
            ) in self.module.parameters():  # where whoever averages gradients can update them: Note [Joined updates]
                _runtime.move_to_shared_heap(p)

    def before_forward(self, module: Module):
        if not module.training or not self.synchronises or not is_grad_enabled():
            return
        if self.joined:
            self.active_ranks(True)
        elif self.broadcast_buffers:
            buffers = list(module.buffers())
            if buffers:
                broadcast_coalesced(buffers, self.group.ranks[0], self.group)

    def _after_gradient(self, parameter):
        if not self.synchronises:
            return
        if not self._waiting:
            self._waiting = True
            self._begin_plan()
            when_done(self._reduce, self._forget)
        number = self._bucket.get(id(parameter))
        if number is None:
            return
        if number < self._begun:
            raise DistributedError(
                "data_parallel", "backward made the gradient of a parameter twice, the second time after it was averaged",
                fix="use data_parallel(model, find_unused_parameters=True), which averages when backward has ended",
            )  # fmt: skip
        self._missing[number] -= 1
        while self._begun < len(self._plan) and self._missing[self._begun] <= 0:
            self._begun += 1
            with no_grad():
                self._average_bucket(self._plan[self._begun - 1], in_background=True)

    def _begin_plan(self):
        """Which parameters make a bucket is decided before their gradients are there, alike on all ranks."""
        self._begun, self._plan, self._bucket = 0, [], {}
        if not (self.unused or self.joined):
            parameters = [p for p in self.module.parameters() if p.requires_grad]
            self._plan = list(_buckets(parameters, self.bucket_bytes))
            self._bucket = {id(p): i for i, bucket in enumerate(self._plan) for p in bucket}
        self._missing = [len(bucket) for bucket in self._plan]

    def _reduce(self):
        try:
            with no_grad():
                if self.unused or self.joined:
                    self._reduce_with_unused([p for p in self.module.parameters() if p.requires_grad])
                for bucket in self._plan[self._begun :]:
                    self._average_used(bucket)
                for work, bucket, made in self._works:
                    work.wait()
                    _set_gradients(bucket, made)
        finally:
            self._forget()

    def _forget(self):
        """This backward pass has ended, or failed."""
        self._waiting = False
        self._works.clear()
        self._plan, self._bucket = [], {}

    def _reduce_with_unused(self, parameters: list):
        """Gradients that a rank does not have count as zeros; what no rank has stays None."""
        used = None
        if not _runtime.capturing():  # reading values would end a program: there, they become zeros
            mask = tensor([p.grad is not None for p in parameters])
            used = _own_all_reduce(mask, self.group, "max").tolist()
        for i, p in enumerate(parameters):
            if p.grad is None and (used is None or used[i]):
                p.grad = F.zeros_like(p)
        self._average([p for p in parameters if p.grad is not None])

    def _average(self, parameters: list):
        for bucket in _buckets(parameters, self.bucket_bytes):
            self._average_bucket(bucket)

    def _average_used(self, bucket: list):
        """Those of a bucket that have gradients, which must be the same ones on all ranks: gradients of two parameters that happen
        to have one shape are not averaged."""
        used = [i for i, p in enumerate(bucket) if p.grad is not None]
        tag = _UNNAMED if len(used) == len(bucket) else _SOME_USED + zlib.crc32(repr(used).encode())
        self._average_bucket([bucket[i] for i in used], tag=tag)

    def _average_bucket(self, bucket: list, in_background: bool = False, tag: int = _UNNAMED):
        """Of gradients of one dtype each; in the background where the network does the work. Ranks may call backward from
        different lines, and one that has no more data from none."""
        by_dtype: dict = {}
        for p in bucket:
            by_dtype.setdefault(p.grad.dtype, []).append(p)
        for some in by_dtype.values():
            gradients, made = [p.grad for p in some], []

            def call(gradients=gradients, made=made):
                with no_grad():
                    beside = self.group.runs_beside(gradients[0])
                    made += F.all_reduce_coalesced(gradients, self.group.token, self.group.size(), "avg", tag, beside)

            if in_background and self.group.over_hosts and not _runtime.capturing():
                self._works.append((run_work(self.group, "collectives", call, True), some, made))
            else:
                call()
                _set_gradients(some, made)

    def active_ranks(self, active: bool) -> int:
        """How many ranks still have data."""
        return _own_all_reduce(tensor([int(active)]), self.group, "sum").tolist()[0]

    def shadow(self):
        """Takes part in the steps of ranks that have more data, with gradients of zeros."""
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        mine = [p.grad for p in parameters]
        while self.active_ranks(False):
            for p in parameters:
                p.grad = None
            self._reduce()
        for p, g in zip(parameters, mine, strict=True):
            p.grad = g


def _own_all_reduce(x, group: ProcessGroup, reduction: str):
    """One of ours, which ranks may come to from different lines of the program's."""
    return F.all_reduce_coalesced([x], group.token, group.size(), reduction, _UNNAMED)[0]


def model_tag(module: Module) -> int:
    """A tag for the parameters and buffers of a model: their names, in order."""
    names = [n for n, _ in module.named_parameters()], [n for n, _ in module.named_buffers()]
    return _MODEL + zlib.crc32(repr(names).encode())


def _set_gradients(parameters: list, gradients: list):
    for p, g in zip(parameters, gradients, strict=True):
        p.grad = g


def _before_forward(module: Module, args):
    reducer = module.__dict__.get(_STATE)
    if reducer is not None:  # unless it is a copy
        reducer.before_forward(module)


def _bucket_bytes(module: Module, group: ProcessGroup) -> float:
    """Note [Buckets]."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    beside = [p for p in parameters if group.runs_beside(p)]
    if not beside or group.size() == 1 or this_rank("data_parallel").place is not None or _runtime.capturing():
        return FIXED
    total = sum(p.numel() * p.dtype.itemsize for p in parameters)
    return max(link_of(group, beside[0].device).bucket(total), 1.0)


def _buckets(parameters: list, most_bytes: float):
    """Parameters in groups of one dtype and at most so many bytes; in the reverse order, as gradients come."""
    bucket, size = [], 0
    for p in reversed(parameters):
        n = p.numel() * p.dtype.itemsize
        other = bucket and (p.dtype != bucket[0].dtype or size + n > most_bytes or len(bucket) == MOST_TENSORS)
        if other:
            yield bucket
            bucket, size = [], 0
        bucket.append(p)
        size += n
    if bucket:
        yield bucket


def data_parallel(
    module: Module, *, group: ProcessGroup | None = None, bucket_cap_mb: float | None = None,
    find_unused_parameters: bool = False, broadcast_buffers: bool = True,
) -> Module:  # fmt: skip
    """Makes a module data parallel, and gives it. Its parameters and buffers become those of the first rank; from then on, backward
    leaves gradients averaged over all ranks.

    bucket_cap_mb: how much is reduced at once; by default what suits the link between the ranks, which is measured, and 25 on the
        processors of one host and in elastic programs
    find_unused_parameters: whether some parameters may have no gradient on some ranks
    broadcast_buffers: whether buffers are those of the first rank in every forward pass that trains

    >>> td.distributed.init_process_group()
    >>> model = td.distributed.data_parallel(td.nn.Linear(2, 1))
    >>> model(td.ones(3, 2)).sum().backward()
    >>> [name for name, _ in model.named_parameters()], model.weight.grad.tolist()
    (['weight', 'bias'], [[3.0, 3.0]])
    >>> td.distributed.destroy_process_group()
    """
    group = group_of(group, "data_parallel")
    if group is None:
        raise DistributedError("data_parallel", "this rank is not in the group")
    if module.__dict__.get(_STATE) is not None:
        raise DistributedError("data_parallel", "the module is data parallel already")
    most = _bucket_bytes(module, group) if bucket_cap_mb is None else bucket_cap_mb * 2**20
    reducer = _Reducer(module, group, most, find_unused_parameters, broadcast_buffers)
    module.__dict__[_STATE] = reducer
    reducer.synchronise_parameters()
    return module


def _reducer_of(module: Module, op: str) -> _Reducer:
    reducer = module.__dict__.get(_STATE)
    if reducer is None:
        raise DistributedError(
            op, "the module is not data parallel", fix="use td.distributed.data_parallel(module) first"
        )
    return reducer


@contextlib.contextmanager
def no_sync(module: Module):
    """Inside, backward adds up gradients of this rank alone; the next one outside averages the sums. For gradient accumulation."""
    reducer = _reducer_of(module, "no_sync")
    before, reducer.synchronises = reducer.synchronises, False
    try:
        yield
    finally:
        reducer.synchronises = before


@contextlib.contextmanager
def join(module: Module):
    """For ranks with different numbers of batches: inside, each step counts ranks that still have data, and a rank that is done
    takes part in the others' steps with gradients of zeros."""
    reducer = _reducer_of(module, "join")
    reducer.joined = True
    try:
        yield
        with no_grad():
            reducer.shadow()
    finally:
        reducer.joined = False


class DistributedDataParallel(Module):
    """A module made data parallel, under PyTorch's name. Unlike there, it renames nothing: it has the parameters, names and
    attributes of the module, which it shares, and is one of its class; `module` is the module itself.

    >>> td.distributed.init_process_group()
    >>> model = td.distributed.DistributedDataParallel(td.nn.Linear(2, 1))
    >>> list(model.state_dict()), isinstance(model, td.nn.Linear)
    (['weight', 'bias'], True)
    >>> td.distributed.destroy_process_group()
    """

    def __new__(cls, module: Module, device_ids=None, output_device=None, dim: int = 0, broadcast_buffers: bool = True,
                init_sync: bool = True, process_group: ProcessGroup | None = None, bucket_cap_mb: float | None = None,
                find_unused_parameters: bool = False, check_reduction: bool = False, gradient_as_bucket_view: bool = False,
                static_graph: bool = False, **others):  # fmt: skip
        if device_ids is not None and len(device_ids) > 1:
            raise UnsupportedError(
                "DistributedDataParallel", f"device_ids={device_ids!r}: a rank has one device", fix="give one"
            )
        data_parallel(
            module, group=process_group, bucket_cap_mb=bucket_cap_mb, find_unused_parameters=find_unused_parameters,
            broadcast_buffers=broadcast_buffers,
        )  # fmt: skip
        kind = type(module)
        made = object.__new__(
            type(kind.__name__, (cls, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})
        )
        object.__setattr__(made, "__dict__", module.__dict__)
        return made

    def __init__(self, *args, **kwargs):
        """All is done."""

    def __reduce__(self):
        return _copied, (self.module,)

    @property
    def module(self) -> Module:
        return _reducer_of(self, "module").module

    def no_sync(self):
        """See `td.distributed.no_sync`."""
        return no_sync(self)

    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False
    ):
        """See `td.distributed.join`."""
        return join(self) if enable else contextlib.nullcontext()


def _copied(module: Module) -> Module:
    return module
