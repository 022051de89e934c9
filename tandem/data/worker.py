"""A worker process of a DataLoader: gets tasks, gives batches on shared memory. See Note [Messages] in processes.py."""

from __future__ import annotations

import contextlib
import pickle
import signal
import traceback
from multiprocessing.reduction import recv_handle, send_handle

from tandem import _runtime
from tandem.data import collate
from tandem.data.arena import Arena
from tandem.data.fetch import Ended, StreamFetcher, WorkerInfo, set_worker_info
from tandem.multiprocessing.pack import pack, unpack


def receive_memory(connection):
    """The memory of a descriptor that follows a message."""
    memory = _runtime.SharedMemory.attach(recv_handle(connection))
    memory.close_fd()  # it stays mapped; descriptors are few
    return memory


def describe(error: BaseException) -> bytes:
    """An exception as bytes: itself if it can be pickled, and its traceback as text."""
    text = "".join(traceback.format_exception(error))
    try:
        body = pickle.dumps(error)
        pickle.loads(body)
    except Exception:
        body = None
    return pickle.dumps((body, type(error).__name__, str(error), text))


def main(connection, number: int, count: int, inherited=None):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process, which then ends us
    _runtime.set_num_threads(1)  # there are as many workers as the user wants cores for this
    # Then the main process is gone, or does not want us any more.
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _serve(connection, number, count, inherited)


def _serve(connection, number: int, count: int, inherited):
    message, places, keys, seed = pickle.loads(connection.recv_bytes())
    memories = {key: receive_memory(connection) for key in keys}
    arena = Arena()
    try:
        fetcher, initialise = inherited or unpack(message, places, memories)
        shared_stream = isinstance(fetcher, StreamFetcher) and not getattr(fetcher.dataset, "sharded", False)
        if not shared_stream:
            set_worker_info(WorkerInfo(number, count, seed, fetcher.dataset))
        if initialise is not None:
            initialise(number)
    except Exception as error:
        connection.send_bytes(pickle.dumps((None, None, "error", describe(error), [], [], [], [])))
        return
    collate.memory.allocate = arena.tensor
    while True:
        order, *arguments = pickle.loads(connection.recv_bytes())
        if order == "stop":
            return
        if order == "epoch":
            epoch, key = arguments
            fetcher = fetcher if epoch is None else _begun(fetcher, key)
            continue
        epoch, task, payload, freed = arguments
        arena.release(freed)
        arena.begin()
        body, places = b"", []
        try:
            fetcher = _ready(fetcher)
            body, places = pack(fetcher.fetch(payload), arena)
            kind = "data"
        except Ended:
            kind = "end"
        except Exception as error:
            kind, body = "error", describe(error)
        used, unsent, dropped = arena.end(), arena.unsent, arena.dropped
        arena.unsent, arena.dropped = [], []
        connection.send_bytes(pickle.dumps((epoch, task, kind, body, places, used, unsent, dropped)))
        for key in unsent:
            send_handle(connection, arena.pieces[key].fd, None)
            arena.pieces[key].close_fd()


class _Failed:
    """Stands for a stream whose __iter__ failed: each fetch says so."""

    def __init__(self, fetcher, error):
        self.fetcher, self.error = fetcher, error


def _begun(fetcher, key):
    fetcher = fetcher.fetcher if isinstance(fetcher, _Failed) else fetcher
    try:
        return fetcher.begin(key)
    except Exception as error:
        return _Failed(fetcher, error)


def _ready(fetcher):
    if isinstance(fetcher, _Failed):
        raise fetcher.error
    return fetcher
