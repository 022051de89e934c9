"""Threads that stop together: Coordinator; and threads that keep queues filled: QueueRunner."""

from __future__ import annotations

import contextlib
import threading
import time

from tandem import forks
from tandem.errors import CancelledError, DeadlineError, QueueClosedError, ValueRangeError
from tandem.session.current import current_session
from tandem.session.graph import default_graph


class Coordinator:
    """Tells threads when to stop, and gives the first exception of one of them to whoever joins them.

    >>> coordinator, done = td.Coordinator(), []
    >>> def work():
    ...     with coordinator.stop_on_exception():
    ...         while not coordinator.should_stop():
    ...             done.append(1)
    ...             coordinator.request_stop()
    >>> thread = threading.Thread(target=work)
    >>> thread.start()
    >>> coordinator.join([thread])
    >>> done
    [1]
    """

    def __init__(self, clean_stop_exception_types=(QueueClosedError, CancelledError)):
        self._clean = tuple(clean_stop_exception_types)
        self._stop = threading.Event()
        self._lock = forks.lock()  # guards _error and _threads
        self._error: BaseException | None = None
        self._threads: set[threading.Thread] = set()
        self.joined = False

    def should_stop(self) -> bool:
        return self._stop.is_set()

    def request_stop(self, error: BaseException | None = None):
        """Has all threads stop. The first error is raised by `join`, unless it only says that a queue came to its end."""
        with self._lock:
            if (
                error is not None
                and self._error is None
                and not self._stop.is_set()
                and not isinstance(error, self._clean)
            ):
                self._error = error
            self._stop.set()

    def clear_stop(self):
        with self._lock:
            self._error = None
            self.joined = False
            self._stop.clear()

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        return self._stop.wait(timeout)

    @contextlib.contextmanager
    def stop_on_exception(self):
        """An exception inside stops all threads, and reaches whoever joins instead of this thread."""
        try:
            yield
        except BaseException as error:
            self.request_stop(error)

    def register_thread(self, thread: threading.Thread):
        """Lets `join` wait for this thread too."""
        with self._lock:
            self._threads.add(thread)

    def join(self, threads=None, stop_grace_period_secs: float = 120, ignore_live_threads: bool = False):
        """Waits until threads end; once a stop was requested, for so many seconds at most. Raises what stopped them."""
        with self._lock:
            waiting = list(self._threads.union(threads or ()))
        while any(t.is_alive() for t in waiting) and not self._stop.wait(0.05):
            pass
        for thread in waiting:
            if not self._stop.is_set():
                thread.join()
        deadline = time.monotonic() + stop_grace_period_secs
        for thread in waiting:
            thread.join(max(0.0, deadline - time.monotonic()))
        alive = [t.name for t in waiting if t.is_alive()]
        with self._lock:
            self._threads.difference_update(waiting)
            self.joined = True
            error, self._error = self._error, None
        if error is not None:
            raise error
        if alive and not ignore_live_threads:
            raise DeadlineError(
                "join",
                f"threads did not stop within {stop_grace_period_secs:g} s of being asked to: {', '.join(alive)}",
            )

    def raise_requested_exception(self):
        with self._lock:
            if self._error is not None:
                raise self._error


class QueueRunner:
    """Threads that run enqueue operations again and again, until the queue is closed or a coordinator says stop.

    enqueue_ops: operations of a graph, or plain functions; one thread for each. The last thread to end closes the queue, so that
    consumers see the end; a stop cancels what waits for room.
    """

    def __init__(self, queue, enqueue_ops):
        self.queue = queue
        self.enqueue_ops = list(enqueue_ops)
        if not self.enqueue_ops:
            raise ValueRangeError("QueueRunner", "there is nothing to run: enqueue_ops is empty")
        self._lock = forks.lock()  # guards _running and _errors
        self._running = 0
        self._errors: list[BaseException] = []

    @property
    def exceptions_raised(self) -> list[BaseException]:
        """What ended threads that had no coordinator to tell it to."""
        with self._lock:
            return list(self._errors)

    def create_threads(self, session=None, coord: Coordinator | None = None, daemon: bool = False, start: bool = False):
        """The threads; with a coordinator, one more that unblocks the others when it says stop."""
        if session is None and not all(callable(op) for op in self.enqueue_ops):
            session = current_session()
        with self._lock:
            if self._running:
                raise ValueRangeError("QueueRunner", f"its threads for queue {self.queue.name!r} are running already")
            self._running = len(self.enqueue_ops)
            self._errors.clear()
        name = self.queue.name
        threads = [
            threading.Thread(target=self._run, args=(op, session, coord), name=f"{name}_runner_{k}", daemon=daemon)
            for k, op in enumerate(self.enqueue_ops)
        ]
        if coord is not None:
            threads.append(threading.Thread(target=self._watch, args=(coord,), name=f"{name}_watch", daemon=daemon))
        for thread in threads:
            if coord is not None:
                coord.register_thread(thread)
            if start:
                thread.start()
        return threads

    def _run(self, operation, session, coord):
        try:
            while coord is None or not coord.should_stop():
                if callable(operation):
                    operation()
                else:
                    session.run(operation)
        except (QueueClosedError, CancelledError):
            pass  # an input came to its end, or everything stops
        except BaseException as error:
            if coord is None:
                with self._lock:
                    self._errors.append(error)
            else:
                coord.request_stop(error)
        finally:
            with self._lock:
                self._running -= 1
                last = self._running == 0
            if last:
                self.queue._queue.close(False)

    def _watch(self, coord):
        while not coord.wait_for_stop(0.05):
            with self._lock:
                if self._running == 0:
                    return
        self.queue._queue.close(True)


def add_queue_runner(runner: QueueRunner):
    """Has `start_queue_runners` start it."""
    default_graph().queue_runners.append(runner)


def start_queue_runners(sess=None, coord: Coordinator | None = None, daemon: bool = True, start: bool = True) -> list:
    """Threads of all queue runners of the graph."""
    session = current_session() if sess is None else sess
    return [
        thread
        for runner in session.graph.queue_runners
        for thread in runner.create_threads(session, coord, daemon, start)
    ]
