"""tandem run: starts a program once for each rank, with torchrun's flags and environment."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys

from tandem import _runtime
from tandem.distributed.spawning import Grace
from tandem.distributed.store import Service


def add_arguments(parser: argparse.ArgumentParser):
    parser.add_argument(
        "-n",
        "--nproc-per-node",
        "--nproc_per_node",
        default="auto",
        dest="ranks",
        help='number of ranks, or "auto": one a processor; "2:4" with --elastic: at least 2 and at most 4',
    )
    parser.add_argument(
        "--nnodes", default="1",
        help="number of hosts, each of which runs this command with the same --master-addr and --master-port (or "
        '--rdzv-endpoint); "1:4", on one host, means --elastic with as many times the ranks',
    )  # fmt: skip
    parser.add_argument(
        "--node-rank", "--node_rank", type=int, help="this host's number; in the order of coming unless given"
    )
    parser.add_argument(
        "--rdzv-endpoint", "--rdzv_endpoint", help="host:port; the same as --master-addr and --master-port"
    )
    parser.add_argument(
        "--elastic",
        action="store_true",
        help="ranks may die, and others take their place (--max-restarts), as the program goes on",
    )
    parser.add_argument("--ray", action="store_true", help="ranks are started by Ray, on the machines of its cluster")
    parser.add_argument("--ray-address", help='of the cluster: "auto", "host:port"; one of this host unless given')
    parser.add_argument("--standalone", action="store_true", help="as it always is")
    parser.add_argument("--master-addr", "--master_addr", default="127.0.0.1")
    parser.add_argument(
        "--master-port", "--master_port", type=int, help="for programs that ask for it; any free port unless given"
    )
    parser.add_argument(
        "--max-restarts", "--max_restarts", type=int, default=0, help="how often all ranks start again after a failure"
    )
    for name in ("--rdzv-backend", "--rdzv-id", "--monitor-interval"):
        parser.add_argument(name, name.replace("-", "_").replace("__", "--", 1), help=argparse.SUPPRESS)
    parser.add_argument("-m", "--module", action="store_true", help="the program is a module")
    parser.add_argument("--no-python", "--no_python", action="store_true", help="the program is not Python")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def main(options) -> int:
    least, count = _number_of_ranks(options)
    if options.ray:
        from tandem.distributed.ray_launch import run_program  # Ray is heavy

        return run_program(options, count)
    if options.elastic:
        return ElasticGang(options, count, least).run()
    if options.nnodes != "1":
        from tandem.distributed.hosts import run  # for several alone

        return run(options, count // int(options.nnodes))
    for attempt in range(options.max_restarts + 1):
        code = Gang(options, count, attempt).run()
        if code in (0, 130, 143) or attempt == options.max_restarts:
            return code
        print(f"tandem: all ranks start again ({attempt + 1} of {options.max_restarts})", file=sys.stderr)
    return code


def _number_of_ranks(options) -> tuple[int, int]:
    """The least and the greatest."""
    text = str(_runtime.num_threads()) if options.ranks in ("auto", "cpu") else options.ranks
    least, _, most = text.rpartition(":")
    fewest, _, hosts = options.nnodes.rpartition(":")
    options.elastic |= bool(least) or (bool(fewest) and int(hosts) > 1)
    count = int(most) * int(hosts)
    if count < 1 or (least and not 1 <= int(least) <= int(most)):
        raise ValueError(f"-n {options.ranks}: there must be a rank")
    return int(least or (1 if options.elastic else most)) * int(fewest or 1), count


class Gang:
    """The processes of all ranks. When one fails, all end."""

    first = 0  # the first rank of this host

    def __init__(self, options, count: int, attempt: int):
        self.options, self.count, self.attempt = options, count, attempt
        self.local_count = count  # of this host
        self.port = options.master_port or _free_port()  # the same for all ranks
        self.service = self.begin_service()
        self.processes: list[subprocess.Popen] = []

    def run(self) -> int:
        before = signal.signal(signal.SIGTERM, _stop)
        try:
            for rank in range(self.first, self.first + self.local_count):
                self.start(rank)
            return self.wait()
        except KeyboardInterrupt:  # the terminal has told the ranks, too
            self._end(signal.SIGINT)
            return 130
        except _Stopped:
            self._end(signal.SIGTERM, wait=False)
            return 143
        finally:
            self._end(signal.SIGTERM)
            signal.signal(signal.SIGTERM, before)
            if self.service is not None:
                self.service.close()

    @property
    def store_address(self) -> str:
        return self.service.address

    def begin_service(self) -> Service | None:
        """The key-value service of this host's ranks alone."""
        return Service()

    patience: float | None = None  # milliseconds between looks at other hosts

    def failure_elsewhere(self) -> str | None:
        """Of ranks of other hosts."""
        return None

    def told_failures(self) -> dict[str, str]:
        return {k: v for k, v in self.service.state.values.items() if k.startswith("failure/")}

    def start(self, rank: int, **more: str):
        self.processes.append(subprocess.Popen(self._command(), env={**self._environment(rank), **more}))

    def _command(self) -> list[str]:
        o = self.options
        if o.no_python:
            return [o.program, *o.arguments]
        module = ["-m"] if o.module else []
        launcher = str(os.getpid())
        return [sys.executable, "-m", "tandem.distributed.worker", launcher, *module, o.program, *o.arguments]

    def _environment(self, rank: int) -> dict[str, str]:
        number, size = str(rank), str(self.count)
        made = {
            **os.environ, "RANK": number, "LOCAL_RANK": str(rank - self.first), "WORLD_SIZE": size,
            "LOCAL_WORLD_SIZE": str(self.local_count), "GROUP_RANK": str(self.first // self.local_count), "ROLE_RANK": number,
            "ROLE_WORLD_SIZE": size, "MASTER_ADDR": self.options.master_addr,
            "MASTER_PORT": str(self.port), "TANDEM_STORE": self.store_address,
            "TORCHELASTIC_RESTART_COUNT": str(self.attempt), "TORCHELASTIC_MAX_RESTARTS": str(self.options.max_restarts),
        }  # fmt: skip
        each = str(max(1, _runtime.num_threads() // self.local_count))
        if "OMP_NUM_THREADS" not in made and "TANDEM_NUM_THREADS" not in made:
            made["TANDEM_NUM_THREADS"] = each
        made.setdefault("OMP_NUM_THREADS", each)
        return made

    def wait(self) -> int:
        """Until all have ended, or one has failed; gives the first failure's status."""
        waiting = {os.pidfd_open(p.pid): (rank, p) for rank, p in enumerate(self.processes, self.first)}
        poll = select.poll()
        for descriptor in waiting:
            poll.register(descriptor, select.POLLIN)
        failed = None
        grace = None
        while waiting:
            if grace is None and self.failure_elsewhere() is not None:
                failed, grace = (-1, 1), self.grace()
            for descriptor, _ in poll.poll(self.patience if grace is None else max(0.0, grace.left()) * 1000):
                rank, process = waiting.pop(descriptor)
                poll.unregister(descriptor)
                os.close(descriptor)
                code = process.wait()
                if code and failed is None:
                    failed, grace = (rank, code), self.grace()
            if grace is not None and grace.left() <= 0:
                break
        for descriptor in waiting:
            os.close(descriptor)
        if failed is None:
            return 0
        self._end(signal.SIGTERM, wait=False)
        return self._report(*failed)

    def _report(self, rank: int, code: int) -> int:
        """Which rank failed by itself: one that told so, else the first that ended."""
        told = self.told_failures()
        if rank < 0 and not told:
            print(f"tandem: this host's ranks end: {self.failure_elsewhere()}", file=sys.stderr)
            return code
        if told:
            key, text = min(told.items(), key=lambda item: int(item[0].partition("/")[2]))
            rank, how = int(key.partition("/")[2]), text
        else:
            how = f"ended by signal {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        print(f"tandem: rank {rank} of {self.count} failed: {how}", file=sys.stderr)
        return code if code > 0 else 128 - code

    def _end(self, number: int, wait: bool = True):
        """Has those that still run end: waits for them, asks them, and at last, or when told to end once more, kills them."""
        with contextlib.suppress(KeyboardInterrupt, _Stopped):
            if wait:
                self._await()
            for p in self.processes:
                if p.poll() is None:
                    p.send_signal(number)
            self._await()
        for p in self.processes:
            if p.poll() is None:
                p.kill()
                p.wait()

    def grace(self) -> Grace:
        return Grace([p.pid for p in self.processes if p.poll() is None])

    def _await(self):
        grace = self.grace()
        for p in self.processes:
            while p.poll() is None:
                if grace.left() <= 0:
                    return
                with contextlib.suppress(subprocess.TimeoutExpired):
                    p.wait(max(0.0, grace.left()))


class ElasticGang(Gang):
    """Ranks that may die while the others go on; see Note [Membership] in membership.py."""

    def __init__(self, options, count: int, least: int):
        super().__init__(options, count, 0)
        self.least = least
        self.members: list[str] = []
        self.generation = -1
        self.left = options.max_restarts  # processes that may be started in the place of others
        self.running: dict[int, tuple[str, subprocess.Popen]] = {}  # by a descriptor of the process
        self.poll = select.poll()

    def start(self, rank: int, **more: str):
        super().start(rank, TANDEM_MEMBER=str(rank), **more)
        process = self.processes[-1]
        descriptor = os.pidfd_open(process.pid)
        self.running[descriptor] = str(rank), process
        self.poll.register(descriptor, select.POLLIN)

    def publish(self, members: list[str], reason: str):
        gone = set(self.members).difference(members)
        self.members = members
        self.generation += 1
        state = self.service.state
        epoch = state.bump(reason) if gone else state.current_epoch()
        state.set(f"members/{self.generation}", [members, reason, epoch])
        state.set("generation", self.generation)

    def wait(self) -> int:
        self.publish([str(r) for r in range(self.count)], "the program begins")
        code = 0
        while self.running:
            for descriptor, _ in self.poll.poll(50):
                name, process = self.running.pop(descriptor)
                self.poll.unregister(descriptor)
                os.close(descriptor)
                code = self._ended(name, process.wait())
                if code:
                    self._end(signal.SIGTERM, wait=False)
                    return code
            self._take_in()
        return code

    def _ended(self, name: str, code: int) -> int:
        """What all end with, if they have to."""
        if code == 0:
            return 0
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        others = [m for m in self.members if m != name]
        finished = [m for m in others if m not in {n for n, _ in self.running.values()}]
        if name not in self.members:  # it had not been taken in
            print(f"tandem: process {name}, which was to join, {how}", file=sys.stderr)
            return 0
        rank = self.members.index(name)
        if finished or len(others) < self.least:
            print(
                f"tandem: rank {rank} of {len(self.members)} {how}; {len(others)} are too few to go on", file=sys.stderr
            )
            return code if code > 0 else 128 - code
        print(f"tandem: rank {rank} of {len(self.members)} {how}; {len(others)} go on", file=sys.stderr)
        self.publish(others, f"process {name} {how}")
        if self.left > 0:
            self.left -= 1
            self.start(len(self.processes))
        return 0

    def _take_in(self):
        """Those that are ready to join."""
        values = self.service.state.values
        ready = [n for n, _ in self.running.values() if n not in self.members and values.get(f"ready/{n}")]
        if ready and len(self.members) < self.count:
            self.publish([*self.members, *ready], f"process {', '.join(ready)} joins")


class _Stopped(Exception):
    """The launcher was asked to end."""


def _stop(number, frame):
    raise _Stopped


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
