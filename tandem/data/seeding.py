"""Random numbers of samples.

Note [Seeds of samples]
What a dataset or a transform draws while it makes a sample is a function of the loader's seed, the epoch and the sample's index; so
the same batches come out whatever the number of workers, and after a resume. Tandem's, Python's and NumPy's generators are set
before each sample; in the main process their state is put back afterwards, so that loading does not disturb training. Threads
share those generators, so there they are left alone: use sample_random() or sample_generator(), which belong to the sample.

Python's and NumPy's generators are Mersenne twisters, whose own seeding takes longer than a small sample. Their state is 624 words
at a place that we look for once and check (_python_offset, _numpy_address); the runtime writes the words there, as numbers of a
hash (src/bindings/sample_seeds.cc), and what it costs to make random numbers of them is paid by the samples that draw any.
Where the words are not where we expect them, the generators' own functions are called.
"""

from __future__ import annotations

import random
import struct
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
    current: tuple | None = None  # epoch's key, number of the sample
    python: tuple | None = None  # (the sample it belongs to, random.Random)
    ours: tuple | None = None


_sample = _Sample()


def begin_sample(epoch_key: int, index: int, globally: bool):
    """From here on, random numbers are those of the sample with this number."""
    _sample.current = epoch_key, index
    if globally:
        seeds = _seeds
        if seeds is None or (seeds.numpy is None and "numpy" in sys.modules):
            seeds = find_generators()
        index &= _MASK
        if seeds.native.begin(epoch_key, index) and seeds.reset is not None:
            seeds.reset()  # of a normal number that NumPy has in hand
            seeds.native.begin(epoch_key, index)
        if seeds.slow:
            seeds.set_slowly(mix(epoch_key, index))


def present_sample() -> tuple | None:
    """What end_sample takes: the sample around one that begins, whose dataset may have a loader of its own; mostly none."""
    return _sample.current


def end_sample(outer: tuple | None):
    _sample.current = outer


def sample_random():
    """Python's random functions for the sample being made: a random.Random of its own; outside of loaders, the module `random`.

    >>> 0 <= td.data.sample_random().random() < 1
    True
    """
    current = _sample.current
    if current is None:
        return random
    if _sample.python is None or _sample.python[0] is not current:
        _sample.python = current, random.Random(mix(*current))
    return _sample.python[1]


def sample_generator():
    """A td.Generator for the sample being made; outside of loaders, the default one.

    >>> td.rand(2, generator=td.data.sample_generator()).shape
    (2,)
    """
    current = _sample.current
    if current is None:
        return _runtime.default_generator()
    if _sample.ours is None or _sample.ours[0] is not current:
        _sample.ours = current, _runtime.Generator(mix(*current))
    return _sample.ours[1]


class undisturbed:
    """A context that puts the global generators back at its end. (A second normal number that NumPy has in hand is dropped.)"""

    __slots__ = ("current", "gauss", "python", "numpy", "seeds", "state")

    def __enter__(self):
        self.seeds = seeds = find_generators()
        self.current, self.state, self.gauss = _sample.current, seeds.native.save(), seeds.python.gauss_next
        if seeds.slow:
            self.python = seeds.python.getstate() if "python" in seeds.slow else None
            self.numpy = seeds.numpy.get_state(legacy=False) if "numpy" in seeds.slow else None

    def __exit__(self, *error):
        seeds = self.seeds
        _sample.current = self.current
        seeds.native.restore(self.state)
        seeds.python.gauss_next = self.gauss
        if seeds.slow:
            if self.python is not None:
                seeds.python.setstate(self.python)
            if self.numpy is not None:
                seeds.numpy.set_state(self.numpy)


class _Seeds:
    """The generators of this process, and how each is set."""

    def __init__(self, numpy, bits):
        self.bits = bits
        self.python = random.random.__self__  # what the module's functions use
        self.numpy = None if numpy is None else numpy.random
        offset = _python_offset(self.python)
        address = 0 if numpy is None else _numpy_address(numpy, bits)
        self.slow = () if offset else ("python",)
        if numpy is not None and not address:
            self.slow += ("numpy",)
        self.native = _runtime.SampleSeeds(self.python, offset, bits, address)
        self.reset = (lambda: numpy.random.seed(0)) if address else None

    def set_slowly(self, key: int):
        words = _runtime.twister_words(key)
        if "python" in self.slow:
            self.python.setstate((3, (*words, _WORDS), None))
        if "numpy" in self.slow:
            self.numpy.seed(key & 0xFFFFFFFF)


_seeds: _Seeds | None = None
_WORDS = 624


def find_generators() -> _Seeds:
    """Those of this process now: NumPy may come later, and its generator may be exchanged."""
    global _seeds
    numpy = sys.modules.get("numpy")
    if numpy is not None and not hasattr(numpy, "random"):
        numpy = None  # being imported right now
    bits = None if numpy is None else numpy.random.get_bit_generator()
    if _seeds is None or _seeds.bits is not bits:
        _seeds = _Seeds(numpy, bits)
    return _seeds


def _python_offset(generator) -> int:
    """Where in a random.Random its words are, its position just before them; 0 if that is not how it is built."""
    if type(generator) is not random.Random or sys.implementation.name != "cpython":
        return 0
    import ctypes

    probe = random.Random(1)
    *words, position = probe.getstate()[1]
    memory = ctypes.string_at(id(probe), type(probe).__basicsize__)
    offset = memory.find(struct.pack(f"={_WORDS}I", *words))
    return offset if offset >= 4 and memory[offset - 4 : offset] == struct.pack("=i", position) else 0


def _numpy_address(numpy, bits) -> int:
    """Where the state of NumPy's generator is: its words, then its position; 0 if that is not how it is built."""
    if type(bits) is not numpy.random.MT19937:
        return 0
    import ctypes

    address = bits.ctypes.state_address
    state = bits.state["state"]
    expected = state["key"].astype(numpy.uint32).tobytes() + struct.pack("=i", state["pos"])
    return address if ctypes.string_at(address, len(expected)) == expected else 0
