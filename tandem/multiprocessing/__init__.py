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


def get_all_sharing_strategies() -> set[str]:
    """PyTorch's names of the ways in which memory is shared. Here descriptors are passed in any case."""
    return {"file_descriptor", "file_system"}


def get_sharing_strategy() -> str:
    """The way in which memory is shared, in PyTorch's words."""
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepts PyTorch's choice, which chooses nothing here."""
    if new_strategy not in get_all_sharing_strategies():
        raise ValueError(f"new_strategy is {new_strategy!r}; it must be 'file_descriptor' or 'file_system'")


__all__ = [
    *_names,
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "ProcessRaisedException",
    "is_shared",
    "register",
    "share_memory_",
    "spawn",
]
