"""Python's multiprocessing, with tensors that cross processes through shared memory instead of being pickled.

    import tandem.multiprocessing as mp

    model.share_memory()                       # its parameters are now the same memory in all processes that get it
    worker = mp.get_context("spawn").Process(target=train, args=(model,))

The memory has no name in the file system; it goes when the last process that has it goes, however that ends.
"""

from multiprocessing import *  # noqa: F403
from multiprocessing import __all__ as _names

from tandem.multiprocessing.reductions import register
from tandem.multiprocessing.shared import is_shared, share_memory_
from tandem.multiprocessing.spawning import ProcessRaisedException, spawn

__all__ = [*_names, "ProcessRaisedException", "is_shared", "register", "share_memory_", "spawn"]
