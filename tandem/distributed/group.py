"""Process groups: which ranks work together, and this rank's place among them."""

from __future__ import annotations

import atexit
import datetime
import itertools
import os
import sys
import threading
from typing import NamedTuple

from tandem import _runtime, hooks
from tandem.distributed import membership
from tandem.distributed.engines import Engine, SharedMemoryEngine, ask, host, threads
from tandem.distributed.environment import place
from tandem.distributed.store import Store, start_process
from tandem.errors import DistributedError, NoProcessGroupError, UnsupportedError, ValueRangeError, _is_user, source_at
from tandem.switches import NUM_THREADS

DEFAULT_TIMEOUT = 1800.0  # seconds
WORLD = None  # the group of all, as PyTorch names it: td.distributed.group.WORLD


class ProcessGroup:
    """Some ranks, in order. `rank` is this one's position among them."""

    def __init__(self, token: int, ranks: tuple[int, ...], rank: int, communicator):
        self.token, self.ranks, self._rank, self.communicator = token, ranks, rank, communicator
        self.links: dict = {}  # what they measured of the way between them, by kind of device (links.py)
        self.over_hosts = False  # whether its ranks reach one another over a network
        self.queues: dict = {}  # of collectives that run in the background (work.py)
        self._identities = itertools.count(1)

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return len(self.ranks)

    def next_identity(self) -> int:
        """A number for a parameter that its ranks have divided: the same on all of them, as they divide in one order."""
        return next(self._identities)

    def runs_beside(self, x) -> bool:
        """Whether collectives of this tensor run beside what is computed: Note [Beside] in ops/collective.py."""
        return self.over_hosts or x.device != "cpu"

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs in the background."""
        return all(q.is_idle for q in self.queues.values())

    def position(self, rank: int, op: str) -> int:
        """The position of a rank of the world in this group."""
        if rank not in self.ranks:
            raise ValueRangeError(op, f"rank {rank} is not in the group of ranks {list(self.ranks)}")
        return self.ranks.index(rank)

    def __deepcopy__(self, memo):  # a copy of a layer works with the same ranks
        return self

    def __repr__(self):
        return f"<group of ranks {list(self.ranks)}>"


class GroupMember:
    """PyTorch's names for the group of all, and for what new_group gives ranks that are not in it."""

    WORLD = WORLD
    NON_GROUP_MEMBER = object()


class Rank:
    """What a rank has: its engine, its groups, and a thread that tells others where it is when they miss it."""

    def __init__(
        self, engine: Engine, rank: int, size: int, store: Store | None, timeout: float, requires_nccl: bool = False
    ):
        self.engine, self.rank, self.size, self.store, self.timeout = engine, rank, size, store, timeout
        self.place = None  # among those of an elastic program (membership.py)
        self.is_new = False  # whether others run already, and this one has not got their state yet
        self.requires_nccl = requires_nccl  # whether CUDA tensors may not go through host memory
        self.context = _runtime.RankContext(rank + 1 if engine.name == "threads" and size > 1 else 0)
        self.groups: list[ProcessGroup | None] = []  # by token
        self.thread = threading.get_ident()
        self.watchers: list[threading.Thread] = []
        self.world = self.add_group(tuple(range(size)))

    def add_group(self, ranks: tuple[int, ...], timeout: float | None = None) -> ProcessGroup | None:
        token = len(self.groups)
        self.groups.append(None)
        if self.rank not in ranks:
            return None
        position = ranks.index(self.rank)
        communicator = self.engine.communicator(token, ranks, position)
        communicator.set_timeout(self.timeout if timeout is None else timeout)
        if self.requires_nccl:
            communicator.require_nccl()
        self.context.put(token, communicator)
        self.groups[token] = ProcessGroup(token, ranks, position, communicator)
        self.groups[token].over_hosts = self.engine.answers_itself
        if not self.engine.answers_itself:
            watcher = threading.Thread(
                target=_answer, args=(communicator, self.thread), daemon=True, name=f"tandem rank {self.rank}"
            )
            watcher.start()
            self.watchers.append(watcher)
        return self.groups[token]

    def form_again(self, engine: Engine, rank: int, size: int):
        """Another place among other ranks, in the same process. The group of all stays the same object, under the same token, so
        that models and programs that have it go on; others end."""
        self.leave()
        for group in self.groups:
            if group is not None:
                self.context.put(group.token, None)
        world = self.world
        del self.groups[:]
        self.engine.close()
        self.engine, self.rank, self.size = engine, rank, size
        made = self.add_group(tuple(range(size)))
        world.ranks, world._rank, world.communicator, world.queues = made.ranks, made._rank, made.communicator, {}
        world.over_hosts, world.links = made.over_hosts, {}
        self.groups[0] = self.world = world

    def leave(self, failure: str | None = None):
        """Ends its part in all groups; others that wait for it are told."""
        for group in self.groups:
            if group is not None:
                group.communicator.leave(failure is not None, failure or "")
        self.engine.leave(failure)
        for group in self.groups:  # no thread of ours may be left when the interpreter ends
            for queue in () if group is None else group.queues.values():
                queue.end(1.0)
        for watcher in self.watchers:
            watcher.join()
        self.watchers.clear()

    def close(self):
        self.leave()
        for group in self.groups:
            if group is not None:
                self.context.put(group.token, None)
        self.engine.close()
        if self.store is not None:
            self.store.close()


def _answer(communicator, thread: int):
    while (question := communicator.await_question(5.0)) != "end":
        if question:
            communicator.answer(whereabouts(thread))


def whereabouts(thread: int) -> str:
    """The line of the user's at which a thread is."""
    frame = sys._current_frames().get(thread)
    while frame is not None and not _is_user(frame.f_code):
        frame = frame.f_back
    return "a place unknown" if frame is None else str(source_at(frame.f_code, frame.f_lineno))


# -- this rank: of the process, or, where ranks are threads, of the thread

_local = threading.local()
_process: Rank | None = None


def current() -> Rank | None:
    rank = getattr(_local, "rank", None)
    return _process if rank is None else rank


def this_rank(op: str) -> Rank:
    rank = current()
    if rank is None:
        raise NoProcessGroupError(
            op,
            "there is no process group",
            fix="call td.distributed.init_process_group() first, in a program started by `tandem run`",
        )
    return rank


def enter(rank: Rank | None):
    """Has this thread be that rank."""
    _local.rank = rank
    _runtime.RankContext.enter(None if rank is None else rank.context)


def group_of(group: ProcessGroup | None, op: str) -> ProcessGroup | None:
    """The group that is meant; None: this rank is not in it."""
    rank = this_rank(op)
    if group is GroupMember.NON_GROUP_MEMBER:
        return None
    return rank.world if group is None else group


def _ranks_of(group: ProcessGroup | None) -> tuple[int, int] | None:
    """For layers that work together over ranks: a group's token and size; None where nobody else is in it."""
    if current() is None:
        return None
    group = group_of(group, "a layer over ranks")
    return None if group is None or group.size() == 1 else (group.token, group.size())


hooks.ranks_of = _ranks_of

# -- beginning and ending


def is_available() -> bool:
    """Whether there are groups of processes here.

    >>> td.distributed.is_available()
    True
    """
    return sys.platform == "linux"


def is_initialized() -> bool:
    """Whether this process is a rank of a group.

    >>> td.distributed.is_initialized()
    False
    """
    return current() is not None


_BACKENDS = ("shared_memory", "gloo", "mpi", "nccl")


def _backends(backend: str | None) -> list[str]:
    """What a backend asks for: a name, or PyTorch's "cpu:gloo,cuda:nccl"."""
    names = [part.partition(":")[2] or part for part in backend.split(",")] if isinstance(backend, str) else []
    if backend is not None and (not names or any(name not in _BACKENDS for name in names)):
        raise UnsupportedError(
            "init_process_group", f"backend {backend!r} is not offered",
            fix='give "shared_memory", "mpi", "nccl", or "gloo", which is shared memory where all ranks are on one host',
        )  # fmt: skip
    return names


def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout=None, world_size: int = -1, rank: int = -1,
    store: Store | None = None, group_name: str = "", pg_options=None, device_id=None, elastic: bool = False,
):  # fmt: skip
    """Makes this process a rank of the group of all processes that were started together, by `tandem run`, torchrun, mpirun or
    srun.

    Without any of them it is the only rank of a group of one, so that a program may always call this.

    backend: "shared_memory", for ranks of one host; "mpi", for ranks of several, which needs an MPI library with the standard ABI
        (pip install "tandem-dl[mpi]"); "gloo", which is shared memory on one host, and over several Gloo where Tandem was built
        with it, or else MPI. Unless given, the one that serves. CUDA tensors go by NCCL where it can be opened, and else
        through host memory, with a warning; with "nccl" that is an error
    init_method: "env://" (the environment says all), or "tcp://host:port" with world_size and rank
    timeout: how long a collective waits for others; seconds or a timedelta; half an hour unless given
    elastic: whether ranks may go and come while the program runs, under `tandem run --elastic`; see td.distributed.elastic

    >>> td.distributed.init_process_group()
    >>> td.distributed.get_rank(), td.distributed.get_world_size()
    (0, 1)
    >>> td.distributed.destroy_process_group()
    """
    global _process
    if current() is not None:
        raise DistributedError(
            "init_process_group", "this process is in a group already", fix="call destroy_process_group first"
        )
    backends = _backends(backend)
    nccl = "nccl" in backends
    seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else timeout
    seconds = DEFAULT_TIMEOUT if seconds is None else float(seconds)
    if elastic or membership.is_elastic():
        _process = _join(seconds, nccl)
        _runtime.RankContext.set_default(_process.context)
        _watch_ending()
        return
    found = place(rank if rank >= 0 else None, world_size if world_size >= 0 else None)
    if found is None or found.size == 1:
        _process = Rank(threads(1)[0], 0, 1, None, seconds, nccl)
    else:
        if not 0 <= found.rank < found.size:
            raise ValueRangeError("init_process_group", f"rank {found.rank} is not one of {found.size} ranks")
        store = _find_store(found, init_method, seconds) if store is None else store
        store = store.within(f"{group_name}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}/{_next_formation()}/")
        engine = _engine(store, found.rank, found.size, backends)
        _process = Rank(engine, found.rank, found.size, store, seconds, nccl)
        _divide_threads(found.local_size)
    _runtime.RankContext.set_default(_process.context)
    _watch_ending()


_formations = 0


def _next_formation() -> int:
    """How often this process has begun a group of all; all ranks do as often."""
    global _formations
    _formations += 1
    return _formations


def _engine(store: Store, rank: int, size: int, backends: list[str]) -> Engine:
    """What serves: shared memory where all ranks are on one host, unless MPI is asked for; over several, MPI or Gloo."""
    store.set(f"host/{rank}", host())
    hosts = [ask(store, f"host/{r}", rank) for r in range(size)]
    if "mpi" not in backends and ("shared_memory" in backends or len(set(hosts)) == 1):
        return SharedMemoryEngine(store, rank, size)
    from tandem.distributed import gloo, mpi  # for several hosts alone

    thread = threading.get_ident()
    # All ranks have to choose alike, and their hosts may have other libraries.
    store.set(f"networks/{rank}", [gloo.find_plugin() is not None, mpi.find_library() is not None])
    every = [ask(store, f"networks/{r}", rank) for r in range(size)]
    has_gloo, has_mpi = (all(has) for has in zip(*every, strict=True))
    by_gloo = has_gloo and "mpi" not in backends and ("gloo" in backends or not has_mpi)
    engine = gloo.GlooEngine if by_gloo else mpi.MpiEngine
    return engine(store, rank, hosts, lambda: whereabouts(thread))


def _join(seconds: float, nccl: bool) -> Rank:
    """A rank of an elastic program: its place is what the launcher says."""
    if not membership.is_elastic():
        return Rank(threads(1)[0], 0, 1, None, seconds, nccl)  # nobody started others
    store = Store(os.environ["TANDEM_STORE"], min(seconds, 300.0))
    place = membership.join(store)
    while True:
        try:
            rank = Rank(place.engine(store), place.rank, place.size, store, seconds, nccl)
            break
        except DistributedError:  # another one has died meanwhile
            place = membership.wait_for(store, place.generation, 60.0)
    rank.place = place
    rank.is_new = place.generation > 0
    _divide_threads(place.size)
    return rank


def _find_store(found, init_method: str | None, seconds: float) -> Store:
    """The key-value service: the launcher's, or one in a process that rank 0 starts."""
    if found.store is not None and init_method in (None, "env://"):
        return Store(found.store, min(seconds, 300.0))
    host, port = found.master
    if init_method is not None and init_method.startswith("tcp://"):
        host, _, text = init_method.removeprefix("tcp://").rpartition(":")
        port = int(text)
    elif init_method not in (None, "env://"):
        raise UnsupportedError(
            "init_process_group", f"init_method={init_method!r} is not offered", fix='use "env://" or "tcp://host:port"'
        )
    elif "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun has a service of its own at this port
        port += 1
    if found.rank == 0:
        start_process(port)
    return Store(f"{host}:{port}", min(seconds, 300.0))


def _divide_threads(ranks: int):
    """Ranks of one host share its processors, unless somebody has said how many threads there are to be."""
    if ranks > 1 and NUM_THREADS.value == NUM_THREADS.default and "OMP_NUM_THREADS" not in os.environ:
        _runtime.set_num_threads(max(1, _runtime.num_threads() // ranks))


_watching = False


def _watch_ending():
    """However this process ends, the others learn of it: at its end, by an exception nobody catches, or (pidfd) killed."""
    global _watching
    if _watching:
        return
    _watching = True
    before = sys.excepthook

    def hook(kind, error, traceback):
        if _process is not None:
            _process.leave(describe_failure(error))
        before(kind, error, traceback)

    sys.excepthook = hook
    atexit.register(lambda: _process is not None and _process.leave())


def describe_failure(error: BaseException) -> str:
    """An exception in a line, with the user's line that raised it."""
    text = f"{type(error).__name__}: {error}".partition("\n")[0]
    entry, place = error.__traceback__, None
    while entry is not None:
        if _is_user(entry.tb_frame.f_code):
            place = source_at(entry.tb_frame.f_code, entry.tb_lineno)
        entry = entry.tb_next
    return text if place is None else f"{text}, at {place}"


def destroy_process_group(group: ProcessGroup | None = None):
    """Ends this rank's part in the group of all, and in all others; or in one other group."""
    global _process
    rank = this_rank("destroy_process_group")
    if group is not None and group is not rank.world:
        group.communicator.leave(False, "")
        rank.context.put(group.token, None)
        return
    rank.close()
    if getattr(_local, "rank", None) is not None:
        enter(None)
    else:
        _process = None
        _runtime.RankContext.set_default(None)


def new_group(ranks=None, timeout=None, backend: str | None = None, pg_options=None, use_local_synchronization: bool = False,
              group_desc: str | None = None):  # fmt: skip
    """A group of some ranks. All ranks must call this, also those that are not in it, in the same order; those get
    GroupMember.NON_GROUP_MEMBER, with which collectives do nothing."""
    rank = this_rank("new_group")
    ranks = tuple(range(rank.size)) if ranks is None else tuple(sorted(ranks))
    if len(set(ranks)) != len(ranks) or not ranks or ranks[0] < 0 or ranks[-1] >= rank.size:
        raise ValueRangeError("new_group", f"ranks {list(ranks)} must be different ones of 0 to {rank.size - 1}")
    seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else timeout
    made = rank.add_group(ranks, seconds)
    return GroupMember.NON_GROUP_MEMBER if made is None else made


def get_rank(group: ProcessGroup | None = None) -> int:
    """This process's number in the group; -1 if it is not in it."""
    group = group_of(group, "get_rank")
    return -1 if group is None else group.rank()


def get_world_size(group: ProcessGroup | None = None) -> int:
    """How many ranks the group has; -1 if this process is not in it."""
    group = group_of(group, "get_world_size")
    return -1 if group is None else group.size()


def get_backend(group: ProcessGroup | None = None) -> str:
    """The engine's name."""
    rank = this_rank("get_backend")
    return "nccl" if rank.requires_nccl else rank.engine.name


def get_process_group_ranks(group: ProcessGroup | None = None) -> list[int]:
    """The ranks of a group, as numbers in the group of all."""
    return list(group_of(group, "get_process_group_ranks").ranks)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    return group.ranks[group_rank]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    return group.position(global_rank, "get_group_rank")


class FlightRecord(NamedTuple):
    """One collective of a rank (src/bindings/collectives.cc)."""

    rank: int
    sequence: int
    call: str
    done: bool
    age: float  # seconds


def flight_record(group: ProcessGroup | None = None) -> list[dict]:
    """The latest collectives of every rank, also of ranks that have died: {"rank", "sequence", "call", "done", "age"}.

    call is what a message would say: "all_reduce(sum) of float32 (3,) at train.py:12"; age is in seconds.
    """
    group = group_of(group, "flight_record")
    return [FlightRecord._make(record)._asdict() for record in group.communicator.records()]
