"""A task as a process: python -m tandem.distributed.cluster.worker NAME ADDRESS, with the key as the first line of its input. It
ends at the next line, at the end of its input, or with the process that started it, whose children may hold its input open."""

from __future__ import annotations

import os
import sys
import threading

from tandem.distributed.cluster.task import Task
from tandem.multiprocessing.parent import end_with


def main(name: str, address: str):
    parent = os.getppid()
    key = bytes.fromhex(sys.stdin.readline().strip())
    task = Task(name, address, key)
    print("ready", flush=True)
    os.dup2(2, 1)  # nobody reads what its programs print

    def until_the_end():
        sys.stdin.readline()
        os._exit(0)

    end_with(parent)

    threading.Thread(target=until_the_end, daemon=True).start()
    task.closed.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
