"""A task as a process: python -m tandem.distributed.cluster.worker NAME ADDRESS, with the key as the first line of its input. It
ends when its input does."""

from __future__ import annotations

import os
import sys
import threading

from tandem.distributed.cluster.task import Task


def main(name: str, address: str):
    key = bytes.fromhex(sys.stdin.readline().strip())
    task = Task(name, address, key)
    print("ready", flush=True)

    def until_the_end():
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=until_the_end, daemon=True).start()
    task.closed.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
