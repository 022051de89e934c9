"""Processes that end with the one they work for."""

from __future__ import annotations

import os
import select
import threading
import time


def end_with(process: int):
    """Has this process end when another one does. A connection alone does not tell: any child that the other one forked holds its
    end open. Nor does PR_SET_PDEATHSIG, which goes by the thread that made us."""

    def wait():
        try:
            handle = os.pidfd_open(process)
        except ProcessLookupError:
            os._exit(1)
        except (AttributeError, OSError):  # another system, or an old kernel
            while _is_alive(process):
                time.sleep(1)
        else:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            poll.poll()
        os._exit(1)

    threading.Thread(target=wait, name="tandem-parent", daemon=True).start()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
