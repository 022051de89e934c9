"""Random numbers of samples.

Note [Seeds of samples]
What a dataset or a transform draws while it makes a sample is a function of the loader's seed, the epoch and the sample's index; so
the same batches come out whatever the number of workers, and after a resume. Tandem's, Python's and NumPy's generators are set
before each sample; in the main process their state is put back afterwards, so that loading does not disturb training. Threads
share those generators, so there they are left alone: use sample_random() or sample_generator(), which belong to the sample.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading

from tandem import _runtime

_MASK = (1 << 64) - 1


def mix(*parts: int) -> int:
    """One 64-bit number from several; a change of any of them changes all bits (the finaliser of SplitMix64)."""
    state = 0x9E3779B97F4A7C15
    for part in parts:
        state = (state + (part & _MASK)) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
        state = (state + 0x9E3779B97F4A7C15) & _MASK
    return state


class _Sample(threading.local):
    key: int | None = None
    python: random.Random | None = None
    ours: _runtime.Generator | None = None


_sample = _Sample()


def begin_sample(key: int, globally: bool):
    """From here on, random numbers are those of the sample with this key."""
    _sample.key = key
    _sample.python = _sample.ours = None
    if globally:
        _runtime.default_generator().manual_seed(key)
        random.seed(key)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(key & 0xFFFFFFFF)


def end_sample():
    _sample.key = None


def sample_random():
    """Python's random functions for the sample being made: a random.Random of its own; outside of loaders, the module `random`.

    >>> 0 <= td.data.sample_random().random() < 1
    True
    """
    if _sample.key is None:
        return random
    if _sample.python is None:
        _sample.python = random.Random(_sample.key)
    return _sample.python


def sample_generator():
    """A td.Generator for the sample being made; outside of loaders, the default one.

    >>> td.rand(2, generator=td.data.sample_generator()).shape
    (2,)
    """
    if _sample.key is None:
        return _runtime.default_generator()
    if _sample.ours is None:
        _sample.ours = _runtime.Generator(_sample.key)
    return _sample.ours


@contextlib.contextmanager
def undisturbed():
    """Puts the global generators back at the end."""
    ours, python = _runtime.default_generator().get_state(), random.getstate()
    numpy = sys.modules.get("numpy")
    put_back = None if numpy is None else _numpy_state(numpy)
    try:
        yield
    finally:
        end_sample()
        _runtime.default_generator().set_state(ours)
        random.setstate(python)
        if put_back is not None:
            put_back()


_MT19937_BYTES = 4 * 624 + 4  # key and position


def _numpy_state(numpy):
    """A function that puts NumPy's global generator where it is now. (A second normal number that it keeps in hand is dropped.)"""
    bits = numpy.random.get_bit_generator()
    if type(bits) is not numpy.random.MT19937:
        state = numpy.random.get_state(legacy=False)
        return lambda: numpy.random.set_state(state)
    # The public way takes a fifth of a millisecond, element by element.
    import ctypes

    address = bits.ctypes.state_address
    memory = ctypes.string_at(address, _MT19937_BYTES)
    return lambda: ctypes.memmove(address, memory, _MT19937_BYTES)
