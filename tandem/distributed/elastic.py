"""Elastic training: ranks that die are left behind, and others take their place, while the program goes on.

    tandem run --elastic -n 4 train.py       four ranks; fewer when some die, and others in their place (--max-restarts)

Note [Elastic training]
A program keeps what it trains in a `State` and commits it now and then. When a rank has died, the collective that the others are in
fails; `run` then has them form a group without it, in the same processes, puts back the latest state that all of them have
committed, and calls the function again, which goes on from there. What comes out is what the same ranks would have computed. Ranks
commit together, so they differ by one commit at most; each keeps two. A process that joins waits until the others come to a commit;
the first of them, which has all state, gives it a copy.
"""

from __future__ import annotations

import copy
import json
import time

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.autograd.modes import no_grad
from tandem.checkpoint.structure import Encoder, decode
from tandem.distributed import membership
from tandem.distributed.group import Rank, this_rank
from tandem.distributed.objects import broadcast_object_list
from tandem.distributed.store import StoreError
from tandem.errors import DistributedError
from tandem.ops.random import get_rng_state, set_rng_state
from tandem.tensors.constructors import asarray

__all__ = ["State", "run"]

_NEWS = 0.2  # seconds between two questions whether somebody wants to join
_REFORM = 60.0  # seconds that forming a group again may take


class _Joining(Exception):
    """Somebody wants to join, and all ranks know it."""


class State:
    """What a training run consists of, by name: models, optimisers, anything else with `state_dict` and `load_state_dict`, and
    plain values (numbers, texts, tensors, lists and dicts of them), which are its attributes.

    >>> td.distributed.init_process_group(elastic=True)
    >>> state = td.distributed.elastic.State(model=td.nn.Linear(2, 1), step=0)
    >>> def train(state):
    ...     while state.step < 3:
    ...         state.step += 1
    ...         state.commit()
    ...     return state.step
    >>> td.distributed.elastic.run(train, state)
    3
    >>> td.distributed.destroy_process_group()
    """

    def __init__(self, **parts):
        self.__dict__["_names"] = tuple(parts)
        self.__dict__["_commits"] = {}  # number: state; the latest two
        self.__dict__["_number"] = 0
        self.__dict__["_asked"] = 0.0
        self.__dict__.update(parts)

    def __setattr__(self, name: str, value):
        if name not in self._names:
            raise AttributeError(f"State has no {name!r}; it was made of {', '.join(self._names)}")
        self.__dict__[name] = value

    def commit(self):
        """Marks a point to come back to. All ranks must call this alike; what others need to join happens here, too."""
        rank = this_rank("commit")
        if _newest(self, rank) > _generation(rank):
            raise _Joining
        self._keep(self._number + 1)

    def _keep(self, number: int):
        self.__dict__["_number"] = number
        self._commits[number] = self._save()
        for old in [n for n in self._commits if n < number - 1]:
            del self._commits[old]

    def _save(self) -> dict:
        saved: dict = {"random": get_rng_state()}
        with no_grad():
            for name in self._names:
                part = getattr(self, name)
                saved["part." + name] = _copied(part.state_dict() if hasattr(part, "state_dict") else part)
        return saved

    def _load(self, saved: dict):
        set_rng_state(saved["random"])
        for name in self._names:
            part, value = getattr(self, name), _copied(saved["part." + name])
            if hasattr(part, "load_state_dict"):
                part.load_state_dict(value)
            else:
                self.__dict__[name] = value

    def _restore(self, number: int):
        self._load(self._commits[number])
        self.__dict__["_number"] = number
        self._commits.pop(number + 1, None)


def _copied(value):
    if isinstance(value, _runtime.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {k: _copied(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_copied(v) for v in value)
    return copy.deepcopy(value)


def _generation(rank: Rank) -> int:
    return 0 if rank.place is None else rank.place.generation


def _newest(state: State, rank: Rank) -> int:
    """The latest generation, as all ranks know it: one of them asks now and then."""
    if rank.place is None:
        return 0
    mine = _generation(rank)
    if rank.rank == 0 and time.monotonic() - state._asked > _NEWS:
        state.__dict__["_asked"] = time.monotonic()
        mine = membership.latest(rank.store)
    return max(_every(mine, rank))


def _every(number: int, rank: Rank) -> list[int]:
    """This number of every rank."""
    return F.all_gather(asarray([number], dtype=dtypes.int64), 0, rank.size).tolist()


def run(train, state: State):
    """Calls train(state) and gives what it returns. Whenever ranks go or come, it is called again, with the state of the latest
    commit. What it makes of the number of ranks (samplers, loaders, learning rates) it makes again each time."""
    rank = this_rank("elastic.run")
    rank.is_new = False
    state._keep(state._number)
    fresh = rank.place is not None and rank.place.generation > 0  # others run already
    while True:
        try:
            if fresh:
                _agree_on_state(state, rank)
                fresh = False
            return train(state)
        except _Joining:
            state._keep(state._number + 1)
            _form_again(rank, _REFORM)
        except DistributedError as error:
            if rank.place is None:
                raise
            _form_again(rank, _REFORM if " failed" in error.rule else 2.0, error)
        fresh = True


def _form_again(rank: Rank, timeout: float, error: DistributedError | None = None):
    """A group of those that belong to the program now. Raises the error if they are the same as before."""
    after = _generation(rank)
    while True:
        try:
            place = membership.wait_for(rank.store, after, timeout)
        except DistributedError:
            if error is not None:
                raise error from None
            raise
        try:
            rank.form_again(place.engine(rank.store), place.rank, place.size)
            rank.place = place
            return
        except (DistributedError, StoreError) as again:  # another one has died meanwhile
            after, error = place.generation, error or again


def _agree_on_state(state: State, rank: Rank):
    """All go on from the latest commit that all have; those that have none get that of the first rank."""
    numbers = _every(state._number if state._number > 0 else -1, rank)
    known = [n for n in numbers if n >= 0]
    number = min(known) if known else 0
    without = numbers[rank.rank] < 0
    state._restore(0 if without else number)
    if len(known) < rank.size:
        root = numbers.index(known[0]) if known else 0  # the first was not taken in just now
        _copy_state(state, rank, root, number, takes=without and rank.rank != root)


def _copy_state(state: State, rank: Rank, root: int, number: int, takes: bool):
    """The state of one rank on those that have none."""
    mine = rank.rank == root
    encoder = Encoder()
    plain = json.dumps(encoder.encode(state._save())) if mine else None
    shapes = {k: [t.dtype.name, list(t.shape)] for k, t in encoder.tensors.items()}
    message = [plain, shapes]
    broadcast_object_list(message, root)
    tensors = {}
    for key, (name, shape) in message[1].items():
        dtype = next(d for d in dtypes.ALL if d.name == name)
        x = encoder.tensors[key].contiguous() if mine else F.full(tuple(shape), 0, dtype=dtype)
        tensors[key] = F.broadcast(x, 0, rank.size, root)
    if takes:
        state._load(decode(json.loads(message[0]), tensors.__getitem__))
        state._keep(number)
