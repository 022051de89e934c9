"""tandem run on several hosts: each host's launcher starts its ranks, and all meet at one key-value service.

    host a:  tandem run --nnodes 2 --master-addr a --master-port 29400 -n 4 train.py
    host b:  the same line

The service runs in the launcher of the host that has the address. A launcher that ends before its ranks, and a rank that fails,
raise the service's epoch: ranks of all hosts learn of it, and the other launchers end theirs.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time

from tandem.distributed.launcher import Gang
from tandem.distributed.store import EpochError, Service, Store, StoreError

DEFAULT_PORT = 29400
_SETTLE = 10.0  # seconds, at most, until the service has seen the end of all connections of ranks that have ended


def run(options, ranks: int) -> int:
    """ranks: those of each host."""
    if options.rdzv_endpoint:
        host, _, port = options.rdzv_endpoint.rpartition(":")
        options.master_addr, options.master_port = (host, int(port)) if host else (port, DEFAULT_PORT)
    options.master_port = options.master_port or DEFAULT_PORT
    service = _service(options)
    store = Store(f"{options.master_addr}:{options.master_port}")
    hosts = int(options.nnodes)
    try:
        number = store.add("hosts", 1) - 1 if options.node_rank is None else options.node_rank
        if number >= hosts:
            raise SystemExit(f"tandem: {number + 1} hosts have come, and --nnodes is {hosts}")
        code = 1
        for attempt in range(options.max_restarts + 1):
            code = HostGang(options, ranks, attempt, number, store).run()
            if code in (0, 130, 143) or attempt == options.max_restarts:
                break
            print(f"tandem: all ranks start again ({attempt + 1} of {options.max_restarts})", file=sys.stderr)
        store.set(f"ended/{number}", code)
        if service is not None:  # others need it until they end
            for other in range(hosts):
                store.get(f"ended/{other}", timeout=1e6 if code == 0 else 10)
        return code
    except StoreError as error:
        print(f"tandem: {error}", file=sys.stderr)
        return 1
    finally:
        if service is not None:
            service.close()


def _service(options) -> Service | None:
    """The service, if this host has the address and no other launcher of it has begun one."""
    try:
        return Service(options.master_port, options.master_addr)
    except OSError:
        return None


class HostGang(Gang):
    """The ranks of one host among several."""

    patience = 100.0

    def __init__(self, options, ranks: int, attempt: int, number: int, store: Store):
        super().__init__(options, ranks * int(options.nnodes), attempt)
        self.local_count, self.first, self.number, self.store = ranks, ranks * number, number, store
        self._elsewhere: str | None = None
        # Nobody of an earlier attempt is left when this one's epoch is read, and no rank starts before all have read it.
        self._meet("began")
        if attempt:
            end = time.monotonic() + _SETTLE
            while any(name.startswith("rank ") for name in store.attending()) and time.monotonic() < end:
                time.sleep(0.01)
            for key in self._failure_keys():
                store.delete_key(key)
        self._epoch = store.epoch()
        self._meet("ready")
        self.name = f"the launcher of host {number} (attempt {attempt})"
        store.attend(self.name)
        threading.Thread(target=self._watch, daemon=True, name="tandem launcher").start()

    def begin_service(self) -> None:
        """There is one for all hosts."""

    def _meet(self, name: str):
        self.store.set(f"{name}/{self.attempt}/{self.number}", True)
        for other in range(int(self.options.nnodes)):
            while True:
                with contextlib.suppress(EpochError):  # of the attempt before
                    self.store.get(f"{name}/{self.attempt}/{other}", timeout=600)
                    break

    def _watch(self):
        try:
            self.store.get(f"never/{self.attempt}", timeout=1e6, since=self._epoch)
        except StoreError as error:
            self._elsewhere = str(error)

    def failure_elsewhere(self) -> str | None:
        return self._elsewhere

    def told_failures(self) -> dict[str, str]:
        found = {}
        for key in self._failure_keys():
            with contextlib.suppress(StoreError):  # another host may have begun again, and taken it away
                found[key] = self.store.get(key, timeout=0)
        return found

    def _failure_keys(self) -> list[str]:
        with contextlib.suppress(StoreError):
            names = self.store.keys()
            return [name for name in names if name.startswith("failure/")]
        return []

    @property
    def store_address(self) -> str:
        return self.store.address

    def run(self) -> int:
        code = super().run()
        with contextlib.suppress(StoreError):
            if code:
                self.store.bump(f"ranks of host {self.number} failed")
            self.store.depart()
        return code
