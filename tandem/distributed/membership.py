"""Who belongs to an elastic program: the launcher writes it down, processes read it.

Note [Membership]
Processes have names that stay; ranks are positions in the list of those that belong to the program now. Every list has a number,
its *generation*, and is a value of the key-value service:

    members/3        [["0", "2", "5"], "process 1 ended by SIGKILL", 4]  who belongs since generation 3, why, and the epoch
    generation       3                                                   the latest
    ready/5          true                                                a process that waits to be taken in

The launcher alone writes lists: it learns at once that a process has ended, and reads who is ready. Those that belong already
come first, in their order, so that the first of them has all state that there is. When a process has gone, the service's epoch is
raised, which wakes whoever waits for it. Who meets others asks for their keys by the epoch of its generation, so that it does not
wait for one who was gone before it asked.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from tandem.distributed.engines import Engine, SharedMemoryEngine, threads
from tandem.distributed.store import Store, StoreError
from tandem.errors import DistributedError


class Place(NamedTuple):
    """A process's place in a generation."""

    generation: int
    rank: int
    members: tuple[str, ...]
    reason: str
    epoch: int

    @property
    def size(self) -> int:
        return len(self.members)

    def engine(self, store: Store) -> Engine:
        if self.size == 1:
            return threads(1)[0]
        return SharedMemoryEngine(store.within(f"generation/{self.generation}/", self.epoch), self.rank, self.size)


def is_elastic() -> bool:
    """Whether `tandem run --elastic` started this process."""
    return "TANDEM_MEMBER" in os.environ


def name() -> str:
    return os.environ["TANDEM_MEMBER"]


def latest(store: Store) -> int:
    return store.get("generation")


def place_in(store: Store, generation: int) -> Place | None:
    """This process's place; None if it does not belong to that generation."""
    members, reason, epoch = store.get(f"members/{generation}")
    if name() not in members:
        return None
    place = Place(generation, members.index(name()), tuple(members), reason, epoch)
    os.environ.update(RANK=str(place.rank), WORLD_SIZE=str(place.size))
    return place


def join(store: Store, timeout: float = 300.0) -> Place:
    """Waits until this process belongs to the program."""
    store.set(f"ready/{name()}", True)
    return wait_for(store, -1, timeout)


def wait_for(store: Store, after: int, timeout: float) -> Place:
    """The place in the latest generation after this one that has this process."""
    end = time.monotonic() + timeout
    while True:
        try:
            generation = latest(store)
            place = place_in(store, generation) if generation > after else None
        except StoreError as error:
            raise DistributedError("init_process_group", f"the launcher is gone: {error}") from None
        if place is not None:
            return place
        if time.monotonic() > end:
            raise DistributedError(
                "init_process_group",
                f"process {name()} was not taken in within {timeout:g} s (generation {generation})",
            )
        time.sleep(0.01)
