"""Worker processes of a DataLoader, seen from the main process.

Note [Messages]
Each worker has a socket of its own. To it go ("epoch", number, key, numbers of loops that run), ("batch", epoch, task number,
indices, pieces of memory that came back) and ("stop",); from it come (epoch, task number, kind, body, places, pieces used, new
pieces, dropped pieces), with the descriptors of new pieces behind. Tensors and large arrays are not in the body but in the pieces
(tandem/multiprocessing/pack.py). A piece is lent until no tensor of this process is on it; its number then goes back with the next
task.

Several loops may share the workers of a loader that keeps them: a worker has a fetcher for each, and whoever receives a batch hands
it to the loop that it is for.

Any worker may make any batch; they are handed out in order. A worker that dies closes its socket, which is how that is noticed.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import weakref
from multiprocessing.connection import wait
from multiprocessing.reduction import send_handle

from tandem.data import worker
from tandem.data.fetch import refuse_in_child, stop_error
from tandem.data.main_guard import unguarded_main
from tandem.errors import DTypeError, WorkerError
from tandem.multiprocessing.pack import pack, unpack
from tandem.multiprocessing.space import Space

_EPOCHS = itertools.count()
_ENDS_WITHIN = (
    10.0  # seconds in which the status of a worker comes whose connection has ended: a busy machine takes its time
)
_DEAD = (EOFError, BrokenPipeError, ConnectionResetError)


class RemoteTraceback(Exception):
    """The traceback of a worker, as the cause of the exception that it raised."""

    def __str__(self):
        return f"\n\n{self.args[0]}"


class _Worker:
    def __init__(self, process, connection):
        self.process, self.connection = process, connection
        self.pieces: dict = {}
        self.lent: list[int] = []
        self.busy = 0  # tasks it has not answered


class WorkerPool:
    def __init__(self, loader):
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise WorkerError(
                "DataLoader",
                "a worker process, while it imports the main module, comes to a loop over a loader with workers",
                fix='put the program under `if __name__ == "__main__":`, or pass worker_type="thread"',
            )
        context = loader.multiprocessing_context
        if context is None or isinstance(context, str):
            context = multiprocessing.get_context(context or _default_method())
        _preload(context)
        space = Space()
        recipe, inherited = (loader._fetcher(), loader.worker_init_fn), None
        if context.get_start_method() == "fork":  # children have what we have
            recipe, inherited = None, recipe
        try:
            message, places = pack(recipe, space)
        except Exception as error:
            raise DTypeError(
                "DataLoader",
                f"the dataset, collate_fn or worker_init_fn cannot be sent to worker processes: {error}",
                fix='define them at the top of a module, or pass worker_type="thread" or multiprocessing_context="fork"',
            ) from error
        self.workers: list[_Worker] = []
        self.process = os.getpid()
        # Two threads may have a loop each.
        self.receiving, self._sending = threading.Lock(), threading.Lock()
        self.iterators: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # epoch -> the loop over it
        self._finalizer = weakref.finalize(self, _close, self.workers, self.process)
        _pools.add(self)
        setup = pickle.dumps((message, places, list(space.pieces), loader.seed))
        for number in range(loader.num_workers):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=worker.main,
                args=(theirs, number, loader.num_workers, self.process, inherited and (*inherited, ours)),
                daemon=True,
                name=f"tandem-data-{number}",
            )
            process.start()
            theirs.close()
            self.workers.append(_Worker(process, ours))
        for w in self.workers:
            self.send(w, setup)
            try:
                for memory in space.pieces.values():
                    send_handle(w.connection, memory.fd, None)
            except OSError:
                raise self.death(w) from None

    def send(self, w: _Worker, message: bytes):
        try:
            with self._sending:
                w.connection.send_bytes(message)
        except _DEAD:
            # It may have said why before it went.
            while w.connection.poll(0):
                self.receive(w)
            raise self.death(w) from None

    def receive(self, w: _Worker) -> tuple:
        """The next message of a worker, with the memory that it mentions mapped."""
        try:
            message = pickle.loads(w.connection.recv_bytes())
            for key in message[6]:
                w.pieces[key] = worker.receive_memory(w.connection)
        except (*_DEAD, RuntimeError, OSError):
            raise self.death(w) from None
        for key in message[7]:
            w.pieces.pop(key, None)
        if message[0] is None:  # it could not even start
            raise rebuild(message[3], f"in worker {self.workers.index(w)} of a DataLoader, as it started")
        return message

    def death(self, w: _Worker) -> WorkerError:
        w.process.join(_ENDS_WITHIN)
        code, number = w.process.exitcode, self.workers.index(w)
        fix = None
        if code is None:
            what = "closed its connection"
        elif code < 0:
            what = f"was killed by {_signal_name(-code)}"
            if -code == signal.SIGKILL:
                fix = "was there enough memory? fewer workers or smaller batches need less"
        else:
            what = f"ended with exit code {code}; what it printed may say why"
            fix = 'is the program under `if __name__ == "__main__":`?' if code else None
        self.close()
        return WorkerError("DataLoader", f"worker {number} (process {w.process.pid}) {what}", fix=fix)

    def returned(self, w: _Worker) -> list[int]:
        """Pieces on which no tensor is left."""
        free = [key for key in w.lent if key in w.pieces and w.pieces[key].users == 0]
        for key in free:  # in place: another loop may be adding to it
            w.lent.remove(key)
        return free

    @property
    def closed(self) -> bool:
        """Whether workers have been ended. A forked child has none of its parent's."""
        return not self._finalizer.alive or os.getpid() != self.process

    def close(self):
        self._finalizer()


_pools: weakref.WeakSet = weakref.WeakSet()
_is_forked = False


def _forget_parent():
    """In a forked child. multiprocessing would end, at the child's exit, all daemons that it has heard of."""
    global _is_forked
    _is_forked = True
    for pool in _pools:
        for w in pool.workers:
            multiprocessing.process._children.discard(w.process)


os.register_at_fork(after_in_child=_forget_parent)


def _default_method() -> str:
    if sys.platform == "linux" and unguarded_main():
        return "fork"
    # The server is a child of the parent, and multiprocessing cannot do with it in a child.
    return "forkserver" if sys.platform == "linux" and not _is_forked else "spawn"


def _preload(context):
    """Has the server from which workers are forked import this package once, instead of each of them."""
    if context.get_start_method() == "forkserver":
        from multiprocessing import forkserver

        if forkserver._forkserver._preload_modules == ["__main__"]:  # nobody has chosen others
            loaded = ["numpy"] if "numpy" in sys.modules else []
            context.set_forkserver_preload(["__main__", "tandem.data.worker", *loaded])


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _close(workers: list[_Worker], process: int):
    if os.getpid() != process:  # in a forked child: they are not its workers, and their sockets stay open in the parent
        for w in workers:
            w.connection.close()
        return
    stop = pickle.dumps(("stop",))
    for w in workers:
        with contextlib.suppress(OSError):
            w.connection.send_bytes(stop)
        w.connection.close()
    deadline = time.monotonic() + 1.0
    for w in workers:
        w.process.join(max(deadline - time.monotonic(), 0))
        if w.process.is_alive():  # in the middle of a sample
            w.process.terminate()
            w.process.join(1)
        if w.process.is_alive():
            w.process.kill()
            w.process.join()


def rebuild(body: bytes, where: str) -> BaseException:
    """The exception of a worker, with its traceback as the cause."""
    pickled, kind, text, traceback = pickle.loads(body)
    error = WorkerError("DataLoader", f"{kind}: {text}") if pickled is None else pickle.loads(pickled)
    if isinstance(error, StopIteration):
        error = stop_error("worker_init_fn")
    error.__cause__ = RemoteTraceback(traceback)
    error.add_note(f"  ({where})")
    return error


class ProcessIterator:
    def __init__(self, loader):
        self.loader = loader
        pool = loader._pool
        if pool is None or pool.closed:
            pool = WorkerPool(loader)
            loader._pool = pool if loader.persistent_workers else None
        self.pool, self.tasks = pool, loader._tasks()
        self.epoch = next(_EPOCHS)
        self.sharded = loader.stream and getattr(loader.dataset, "sharded", False)
        self.exhausted: set[_Worker] = set()  # those whose part of a sharded stream has ended
        self.order: collections.deque = collections.deque()  # (task number, worker) that were handed out
        self.ready: dict = {}
        self.numbers = itertools.count()
        self.ended = False
        self.limit = loader.prefetch_factor * len(pool.workers)
        pool.iterators[self.epoch] = self
        message = pickle.dumps(("epoch", self.epoch, loader._epoch_key(), list(pool.iterators)))
        for w in pool.workers:
            pool.send(w, message)
        if self.sharded:
            if not loader._shares:
                loader._shares = [0] * len(pool.workers)
            size = loader.batch_size or 1
            self.next_of = list(loader._shares)
            self.size = size
            done = sum(loader._shares)
            self.turn = done % len(pool.workers)
        self._submit()

    def __iter__(self):
        return self

    def _submit(self):
        workers = self.pool.workers
        while not self.ended and len(self.order) < self.limit:
            if self.sharded:
                open_ = [w for w in workers if w not in self.exhausted]
                if not open_:
                    self.ended = True
                    return
                while workers[self.turn] in self.exhausted:
                    self.turn = (self.turn + 1) % len(workers)
                share, w = self.turn, workers[self.turn]
                payload = (self.next_of[share] * self.size, self.size)
                self.next_of[share] += 1
                self.turn = (self.turn + 1) % len(workers)
            else:
                payload = next(self.tasks, None)
                if payload is None:
                    self.ended = True
                    return
                share, w = None, min(workers, key=lambda w: w.busy)
            number = next(self.numbers)
            self.pool.send(w, pickle.dumps(("batch", self.epoch, number, payload, self.pool.returned(w))))
            w.busy += 1
            self.order.append((number, w, share))

    def __next__(self):
        if self.pool is None:
            raise StopIteration
        refuse_in_child(self.pool.process, "worker processes")
        if self.pool.closed:
            raise WorkerError(
                "DataLoader", "the worker processes of this iterator have been ended", fix="start a new loop"
            )
        while True:
            self._submit()
            if not self.order:
                self._finish()
                raise StopIteration
            number, w, share = self.order[0]
            if number not in self.ready:
                with self.pool.receiving:
                    if number not in self.ready:  # another loop over the same workers may have got it meanwhile
                        self._receive()
                continue
            self.order.popleft()
            kind, body, places, used, w = self.ready.pop(number)
            if kind == "data":
                batch = unpack(body, places, w.pieces)
                w.lent += used  # not before there are tensors on it: memory without any goes back
                self.loader._delivered(self, share)
                return batch
            w.lent += used
            if kind == "error":
                self.loader._delivered(self, share)
                raise rebuild(body, f"in worker {self.pool.workers.index(w)} of a DataLoader")
            if share is None:  # the stream has ended, and all later tasks lie behind its end
                self.ended = True
            else:
                self.exhausted.add(w)

    def _receive(self):
        timeout = self.loader.timeout or None
        connections = {w.connection: w for w in self.pool.workers}
        found = wait(list(connections), timeout)
        if not found:
            slow = [i for i, w in enumerate(self.pool.workers) if w.busy]
            self.pool.close()
            raise WorkerError(
                "DataLoader",
                f"no batch came within timeout={timeout} s; workers {slow} are at work",
                fix="give more time",
            )
        for connection in found:
            w = connections[connection]
            epoch, number, kind, body, places, used, _, _ = self.pool.receive(w)
            w.busy -= 1
            loop = self if epoch == self.epoch else self.pool.iterators.get(epoch)
            if loop is None or loop.pool is None:  # it was left
                w.lent += used
            else:
                loop.ready[number] = (kind, body, places, used, w)

    def _finish(self):
        self.loader._finished(self)
        self.close()

    def close(self):
        pool, self.pool = self.pool, None
        for _, _, _, used, w in self.ready.values():
            w.lent += used
        self.ready = {}
        if pool is None:
            return
        pool.iterators.pop(self.epoch, None)
        if self.loader._pool is not pool:
            pool.close()

    def __del__(self):
        if getattr(self, "pool", None) is not None:
            self.close()
