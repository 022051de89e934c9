"""Generator: the state of random numbers."""

import copy
import pickle

import pytest

from tandem import _runtime
from tandem._runtime import Generator


def test_seeds_and_state():
    g = Generator()
    assert g.manual_seed(7) is g
    assert g.initial_seed() == 7
    assert g.get_state() == (7, 0)
    assert g._advance(10) == 0
    assert g._advance(5) == 10
    state = g.get_state()
    assert state == (7, 15)
    g._advance(100)
    g.set_state(state)
    assert g._advance(1) == 15
    g.manual_seed(8)
    assert g.get_state() == (8, 0)
    assert Generator(5).get_state() == (5, 0)


def test_fresh_seeds_differ():
    g = Generator()
    assert g.seed() == g.initial_seed()
    assert len({g.seed() for _ in range(10)}) == 10


def test_any_int_is_a_seed():
    for seed in (0, 2**64 - 1, -1, 2**70 + 3):
        assert seed % 2**64 == Generator(seed).initial_seed()
    for seed in (1.5, "a"):
        with pytest.raises(TypeError, match="a seed must be an int"):
            Generator().manual_seed(seed)


def test_copies_go_their_own_way():
    g = Generator(3)
    g._advance(4)
    for other in (pickle.loads(pickle.dumps(g)), copy.deepcopy(g)):
        assert other.get_state() == (3, 4)
        other._advance(1)
    assert g.get_state() == (3, 4)


def test_there_is_one_default():
    assert _runtime.default_generator() is _runtime.default_generator()
