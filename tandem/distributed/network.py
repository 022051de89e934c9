"""Ranks on several hosts: what MPI and Gloo have in common (Note [Over hosts] in src/collectives/hosts_member.h).

What a network does not tell goes through the key-value service, by a thread of each rank that holds a connection to it:

    a rank dies          its connection ends; the service raises the epoch, and all watchers tell their groups
    a rank is stuck      whoever waits puts a question; watchers answer with the line and the collective their rank is at
    a rank leaves        it says how many collectives it took part in
"""

from __future__ import annotations

import contextlib
import threading
import time

from tandem import _runtime
from tandem.distributed.engines import Engine, ask
from tandem.distributed.store import EpochError, Store, StoreError

_ANSWER = 5.0  # seconds that other ranks have to say where they are


class HostsEngine(Engine):
    """An engine whose ranks reach one another over a network alone."""

    answers_itself = True

    def __init__(self, store: Store, rank: int, size: int, whereabouts, world):
        """whereabouts: a function that gives the line of the user at which this rank is; world: what hears of failures."""
        self.store, self.rank, self.size, self.world = store, rank, size, world
        self._whereabouts = whereabouts
        self._members: dict[int, tuple] = {}  # by token: the communicator and its ranks
        self._closed = False
        epoch = store.epoch()
        self._watcher = threading.Thread(target=self._watch, args=(epoch,), daemon=True, name="tandem watcher")
        self._watcher.start()
        # Messages have no meeting at which two ranks could agree how elements go, so all agree now.
        self._all_have_nccl = all(ask(store, f"attends/{r}", rank) for r in range(size))

    def _member(self, token: int, ranks: tuple[int, ...], rank: int):
        """This rank's part in a group."""
        raise NotImplementedError

    def communicator(self, token, ranks, rank):
        if token:  # making a group cannot be interrupted: all are there when it begins
            self.store.set(f"group/{token}/{self.rank}", True)
            for r in ranks:
                ask(self.store, f"group/{token}/{r}", self.rank)
        member = self._member(token, ranks, rank)
        self._members[token] = member, ranks
        if self._all_have_nccl:
            member.let_send_by_device()
        member.connect(lambda number: self._ask_others(token, number), self._report)
        return member

    def leave(self, failure: str | None):
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(StoreError):
            if failure is not None:
                self._report(failure)
            else:
                self._put_question(["left", self.rank, {str(t): m.entered for t, (m, _) in self._members.items()}])
            self.store.depart()
        self._members.clear()

    # -- what ranks tell one another beside the network

    @property
    def _name(self) -> str:
        return f"rank {self.rank}"

    def _report(self, failure: str):
        self.store.bump(f"{self._name} failed ({failure})")

    def _put_question(self, question: list) -> int:
        number = self.store.add("questions", 1)
        self.store.set(f"question/{number}", question)
        return number

    def _watch(self, epoch: int):
        try:
            self.store.attend(self._name)
            self.store.set(f"attends/{self.rank}", _runtime.cuda_unavailable() == "" and _runtime.opens_nccl())
            number = 1
            while not self._closed:
                kind, *rest = self.store.get(f"question/{number}", timeout=1e6, since=epoch)
                if kind == "where":
                    self.store.set(f"answer/{number}/{self.rank}", self._own_state())
                else:
                    for token, (member, _) in list(self._members.items()):
                        member.note_left(rest[0], rest[1].get(str(token), 0))
                number += 1
        except EpochError as error:
            self.world.tell(str(error))
        except StoreError as error:
            if not self._closed:
                self.world.tell(f"this rank is alone: {error}")

    def _own_state(self) -> dict:
        latest = {str(t): (m.records() or [None])[-1] for t, (m, _) in list(self._members.items())}
        return {"where": self._whereabouts(), "latest": {t: r and list(r) for t, r in latest.items()}}

    def _ask_others(self, token: int, number: int) -> str:
        """Of the ranks that are not where this one waits, a line each."""
        lines, end = [], time.monotonic() + _ANSWER
        try:
            question = self._put_question(["where"])
        except StoreError as error:
            return f"\n  {error}"
        for r in self._members[token][1]:
            if r == self.rank:
                continue
            try:
                answer = self.store.get(f"answer/{question}/{r}", timeout=max(0.0, end - time.monotonic()))
            except StoreError:
                lines.append(f"\n  rank {r}: does not answer")
                continue
            latest = answer["latest"].get(str(token))
            if latest is None:
                lines.append(f"\n  rank {r}: is at {answer['where']}; it has called no collective")
            elif latest[3] or latest[1] < number:
                how = "latest collective was" if latest[3] else "current collective is"
                lines.append(f"\n  rank {r}: is at {answer['where']}; its {how} number {latest[1]}, {latest[2]}")
        return "".join(lines)
