"""tandem run: starts a program once for each rank, with torchrun's flags and environment."""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import subprocess
import sys
import time

from tandem import _runtime
from tandem.distributed.spawning import GRACE
from tandem.distributed.store import Service


def add_arguments(parser: argparse.ArgumentParser):
    parser.add_argument(
        "-n",
        "--nproc-per-node",
        "--nproc_per_node",
        default="auto",
        dest="ranks",
        help='number of ranks, or "auto": one a processor',
    )
    parser.add_argument("--nnodes", default="1", help="number of hosts: 1")
    parser.add_argument("--standalone", action="store_true", help="as it always is")
    parser.add_argument("--master-addr", "--master_addr", default="127.0.0.1")
    parser.add_argument(
        "--master-port", "--master_port", type=int, help="for programs that ask for it; any free port unless given"
    )
    parser.add_argument(
        "--max-restarts", "--max_restarts", type=int, default=0, help="how often all ranks start again after a failure"
    )
    for name in ("--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--monitor-interval", "--node-rank"):
        parser.add_argument(name, name.replace("-", "_").replace("__", "--", 1), help=argparse.SUPPRESS)
    parser.add_argument("-m", "--module", action="store_true", help="the program is a module")
    parser.add_argument("--no-python", "--no_python", action="store_true", help="the program is not Python")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def main(options) -> int:
    if options.nnodes not in ("1", "1:1"):
        raise ValueError(f"--nnodes={options.nnodes}: ranks are on one host")
    count = _runtime.num_threads() if options.ranks in ("auto", "cpu") else int(options.ranks)
    if count < 1:
        raise ValueError(f"-n {count}: there must be a rank")
    for attempt in range(options.max_restarts + 1):
        code = _Gang(options, count, attempt).run()
        if code in (0, 130, 143) or attempt == options.max_restarts:
            return code
        print(f"tandem: all ranks start again ({attempt + 1} of {options.max_restarts})", file=sys.stderr)
    return code


class _Gang:
    """The processes of all ranks. When one fails, all end."""

    def __init__(self, options, count: int, attempt: int):
        self.options, self.count, self.attempt = options, count, attempt
        self.service = Service()
        self.processes: list[subprocess.Popen] = []

    def run(self) -> int:
        before = signal.signal(signal.SIGTERM, _stop)
        try:
            for rank in range(self.count):
                self.processes.append(subprocess.Popen(self._command(), env=self._environment(rank)))
            return self._wait()
        except KeyboardInterrupt:  # the terminal has told the ranks, too
            self._end(signal.SIGINT)
            return 130
        except _Stopped:
            self._end(signal.SIGTERM, wait=False)
            return 143
        finally:
            self._end(signal.SIGTERM)
            signal.signal(signal.SIGTERM, before)
            self.service.close()

    def _command(self) -> list[str]:
        o = self.options
        if o.no_python:
            return [o.program, *o.arguments]
        module = ["-m"] if o.module else []
        return [sys.executable, "-m", "tandem.distributed.worker", *module, o.program, *o.arguments]

    def _environment(self, rank: int) -> dict[str, str]:
        number, size = str(rank), str(self.count)
        made = {
            **os.environ, "RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "GROUP_RANK": "0",
            "ROLE_RANK": number, "ROLE_WORLD_SIZE": size, "MASTER_ADDR": self.options.master_addr,
            "MASTER_PORT": str(self.options.master_port or _free_port()), "TANDEM_STORE": self.service.address,
            "TORCHELASTIC_RESTART_COUNT": str(self.attempt), "TORCHELASTIC_MAX_RESTARTS": str(self.options.max_restarts),
        }  # fmt: skip
        each = str(max(1, _runtime.num_threads() // self.count))
        if "OMP_NUM_THREADS" not in made and "TANDEM_NUM_THREADS" not in made:
            made["TANDEM_NUM_THREADS"] = each
        made.setdefault("OMP_NUM_THREADS", each)
        return made

    def _wait(self) -> int:
        """Until all have ended, or one has failed; gives the first failure's status."""
        waiting = {os.pidfd_open(p.pid): (rank, p) for rank, p in enumerate(self.processes)}
        poll = select.poll()
        for descriptor in waiting:
            poll.register(descriptor, select.POLLIN)
        failed = None
        end = None
        while waiting:
            for descriptor, _ in poll.poll(None if end is None else max(0.0, end - time.monotonic()) * 1000):
                rank, process = waiting.pop(descriptor)
                poll.unregister(descriptor)
                os.close(descriptor)
                code = process.wait()
                if code and failed is None:
                    failed, end = (rank, code), time.monotonic() + GRACE
            if end is not None and time.monotonic() >= end:
                break
        for descriptor in waiting:
            os.close(descriptor)
        if failed is None:
            return 0
        self._end(signal.SIGTERM, wait=False)
        return self._report(*failed)

    def _report(self, rank: int, code: int) -> int:
        """Which rank failed by itself: one that told so, else the first that ended."""
        told = {k: v for k, v in self.service.state.values.items() if k.startswith("failure/")}
        if told:
            key, text = min(told.items(), key=lambda item: int(item[0].partition("/")[2]))
            rank, how = int(key.partition("/")[2]), text
        else:
            how = f"ended by signal {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        print(f"tandem: rank {rank} of {self.count} failed: {how}", file=sys.stderr)
        return code if code > 0 else 128 - code

    def _end(self, number: int, wait: bool = True):
        """Has those that still run end: waits for them, asks them, and at last kills them."""
        if wait:
            self._await(GRACE)
        for p in self.processes:
            if p.poll() is None:
                p.send_signal(number)
        self._await(GRACE)
        for p in self.processes:
            if p.poll() is None:
                p.kill()
                p.wait()

    def _await(self, seconds: float):
        end = time.monotonic() + seconds
        for p in self.processes:
            try:
                p.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                return


class _Stopped(Exception):
    """The launcher was asked to end."""


def _stop(number, frame):
    raise _Stopped


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
