"""Shared memory."""

import os

import pytest

import tandem as td
from tandem import _runtime


def test_memory_is_checked_at_its_borders():
    memory = _runtime.SharedMemory(64)
    assert 64 <= memory.bytes
    assert 0 == memory.users
    t = memory.tensor(td.float32, (4, 4))
    assert 1 == memory.users
    del t
    assert 0 == memory.users
    for arguments in (
        (td.float32, (4, 5)),
        (td.float32, (2**40, 2**30)),
        (td.float32, (4,), (-1,)),
        (td.float32, (4,), (2**62,)),
        (td.float32, (4,), None, 60),
        (td.float32, (4,), None, -4),
        (td.float32, (4,), (1, 1)),
    ):
        with pytest.raises((ValueError, MemoryError)):
            memory.tensor(*arguments)
    with pytest.raises(TypeError, match="multiple of the size"):
        memory.tensor(td.float32, (1,), None, 2)
    assert (0, 3) == memory.tensor(td.float32, (0, 3)).shape
    read, write = os.pipe()
    with pytest.raises(ValueError, match="is not shared memory"):
        _runtime.SharedMemory.attach(read)
    os.close(write)


def test_memory_lives_as_long_as_a_tensor_on_it():
    t = _runtime.SharedMemory(64).tensor(td.float32, (4,))
    t.fill_(3)
    view = t[1:]
    del t
    assert [3.0, 3.0, 3.0] == view.tolist()
    assert view.is_shared()
