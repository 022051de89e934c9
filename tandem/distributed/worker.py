"""What `tandem run` starts for each rank: python -m tandem.distributed.worker LAUNCHER [-m] program arguments...

LAUNCHER is a process. It may have ended before a rank can ask to end with it, as imports take their time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import signal
import sys
import traceback

from tandem.distributed import group
from tandem.distributed.store import Store, StoreError
from tandem.errors import DistributedError, hide_frames


def main():
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: no rank outlives the launcher
    if os.getppid() != int(sys.argv.pop(1)):
        raise SystemExit(128 + signal.SIGTERM)
    module = sys.argv[1] == "-m"
    program = sys.argv[2 if module else 1]
    sys.argv = sys.argv[2 if module else 1 :]
    try:
        if module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(program))
            runpy.run_path(program, run_name="__main__")
    except SystemExit:
        raise
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BaseException as error:
        _report(error)
        raise SystemExit(1) from None


def _report(error: BaseException):
    """Tells the other ranks, the launcher and the user. Of a failure that is another rank's, a line is enough."""
    rank = group.current()
    if rank is not None:
        rank.leave(group.describe_failure(error))
    number = os.environ.get("RANK", "0")
    if isinstance(error, DistributedError) and " failed" in error.rule:
        print(f"tandem: rank {number} ends: {error.rule.partition(chr(10))[0]}", file=sys.stderr)
    else:
        text = "".join(traceback.format_exception(hide_frames(_without_ours(error))))
        print(f"tandem: rank {number} failed:\n{text}", file=sys.stderr, end="")
        with contextlib.suppress(KeyError, StoreError):
            Store(os.environ["TANDEM_STORE"], 2.0).set(f"failure/{number}", group.describe_failure(error))


def _without_ours(error: BaseException) -> BaseException:
    """Without the frames of this module and of runpy."""
    entry = error.__traceback__
    while entry is not None and entry.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        entry = entry.tb_next
    return error.with_traceback(entry or error.__traceback__)


if __name__ == "__main__":
    main()
