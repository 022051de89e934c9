"""A worker process of a DataLoader: gets tasks, gives batches on shared memory. See Note [Messages] in processes.py."""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import pickle
import signal
import traceback
from multiprocessing.reduction import recv_handle, send_handle

from tandem import _runtime
from tandem.data import collate
from tandem.data.arena import Arena
from tandem.data.fetch import Ended, StreamFetcher, WorkerInfo, set_worker_info
from tandem.multiprocessing.pack import pack, unpack
from tandem.multiprocessing.parent import end_with


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


def main(connection, number: int, count: int, process: int, inherited=None):
    """process: the one whose worker this is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process, which then ends us
    end_with(process)
    if inherited is not None:
        *inherited, other_end = inherited
        other_end.close()
    # Samples may come from loaders with workers of their own. What multiprocessing fears of daemons is that their children stay
    # behind; ours end with us.
    multiprocessing.current_process()._config["daemon"] = False
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
    fetchers = {}  # by epoch: of each loop that runs
    while True:
        order, *arguments = pickle.loads(connection.recv_bytes())
        if order == "stop":
            return
        if order == "epoch":
            epoch, key, running = arguments
            fetchers = {e: f for e, f in fetchers.items() if e in running}
            fetchers[epoch] = _begun(copy.copy(fetcher), key)
            continue
        epoch, task, payload, freed = arguments
        arena.release(freed)
        arena.begin()
        body, places = b"", []
        try:
            body, places = pack(_ready(fetchers, epoch).fetch(payload), arena)
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


def _begun(fetcher, key):
    """The fetcher at the start of its epoch, or the error that its stream failed with: each fetch says so."""
    try:
        return fetcher.begin(key)
    except Exception as error:
        return error


def _ready(fetchers: dict, epoch: int):
    found = fetchers.get(epoch)
    if found is None:  # the loop was left
        raise Ended
    if isinstance(found, Exception):
        raise found
    return found
