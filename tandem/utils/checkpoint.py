"""Recomputing activations in backward, under PyTorch's path. Saving files is td.checkpoint."""

from tandem.transforms.checkpoint import checkpoint

__all__ = ["checkpoint", "checkpoint_sequential", "get_device_states", "set_device_states"]


def get_device_states(*args) -> tuple:
    """([], []): random numbers of all devices come from one generator, whose state td.get_rng_state() is."""
    return [], []


def set_device_states(devices, states, *, device_type=None) -> None:
    """Does nothing; see get_device_states."""


def checkpoint_sequential(functions, segments: int, input, use_reentrant=None, **kwargs):
    """Runs a sequence of functions in `segments` parts, of which only the ends are kept for backward.

    >>> model = td.nn.Sequential(td.nn.Linear(4, 4), td.nn.ReLU(), td.nn.Linear(4, 2))
    >>> td.utils.checkpoint.checkpoint_sequential(model, 2, td.ones(3, 4)).shape
    (3, 2)
    """
    functions = list(functions)
    if segments < 1:
        raise ValueError(f"checkpoint_sequential: segments is {segments}; it must be at least 1")
    size = -(-len(functions) // segments) or 1

    def part(first: int):
        def run(x):
            for function in functions[first : first + size]:
                x = function(x)
            return x

        return run

    for first in range(0, len(functions), size):
        input = checkpoint(part(first), input, **kwargs)
    return input
