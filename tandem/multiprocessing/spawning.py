"""spawn(fn, args, nprocs): the same function in several processes, under PyTorch's name."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import traceback

from tandem.errors import WorkerError


class ProcessRaisedException(WorkerError):
    """A process of spawn ended with an exception, whose traceback is in the message, or was killed."""


def spawn(fn, args=(), nprocs: int = 1, join: bool = True, daemon: bool = False, start_method: str = "spawn"):
    """Runs fn(i, *args) in nprocs processes, i = 0, 1, ... When one fails the others are ended and its exception is raised here.
    With join=False, gives the Processes at once, whose join() does that.

    fn and args are pickled, tensors cross as shared memory; so fn must be at the top level of a module.
    """
    context = multiprocessing.get_context(start_method)
    started = []
    for i in range(nprocs):
        errors, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, i, args, theirs), daemon=daemon)
        process.start()
        theirs.close()
        started.append((process, errors))
    processes = Processes(started)
    if join:
        processes.join()
        return None
    return processes


def _run(fn, i: int, args, errors):
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass
    except BaseException:
        errors.send(traceback.format_exc())
        raise SystemExit(1) from None


class Processes:
    """What spawn(join=False) gives."""

    def __init__(self, started):
        self.processes = [process for process, _ in started]
        self._errors = [errors for _, errors in started]

    def pids(self) -> list[int]:
        return [p.pid for p in self.processes]

    def join(self, timeout: float | None = None) -> bool:
        """Waits until all have ended: True. False if some still run after `timeout` seconds. Raises if one failed."""
        import time

        end = None if timeout is None else time.monotonic() + timeout
        while running := [p for p in self.processes if p.exitcode is None]:
            failed = self._failed()
            if failed is not None:
                break
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return False
            multiprocessing.connection.wait([p.sentinel for p in running], left)
        failed = self._failed()
        if failed is None:
            return True
        for p in self.processes:
            if p.exitcode is None:
                p.terminate()
            p.join()
        process, errors = self.processes[failed], self._errors[failed]
        text = errors.recv() if errors.poll() else f"it ended with status {process.exitcode}"
        raise ProcessRaisedException("spawn", f"process {failed} failed:\n{text}")

    def _failed(self) -> int | None:
        return next((i for i, p in enumerate(self.processes) if p.exitcode not in (None, 0)), None)
