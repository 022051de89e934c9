"""What a function does besides computing: it is not replayed."""

import gc
import math
import random
import threading
import time
from collections import deque

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.errors import UnsupportedError
from tandem.replay.observe import Observation
from tests.replay.replays import refused, warmed

ITEMS = [1.0, 2.0]


CALLS = []


TOTAL = 0


def test_printing():
    text = refused(lambda x: (print(end=""), x * 2)[1], td.ones(2), match="prints")
    assert "tests/replay/" in text
    refused(lambda x: (td.print(x), x * 2)[1], td.ones(2), match="prints")


def test_appending_to_a_list():
    refused(lambda x: (CALLS.append(1), x * 2)[1], td.ones(2), match="CALLS changes while it runs")
    found = []
    refused(lambda x: (found.append(x * 2), x * 2)[1], td.ones(2), match="found changes while it runs")


def test_appending_to_an_argument():
    f = td.compile(lambda x, to: (to.append(1), x * 2)[1], replay=True)
    f(td.ones(2), [])
    with pytest.raises(UnsupportedError, match="changes a container among its arguments"):
        f(td.ones(2), [])


def test_counting():
    def f(x):
        global TOTAL
        TOTAL += 1
        return x * 2

    refused(f, td.ones(2), match="TOTAL changes while it runs")

    class Net(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return x * 2

    net = Net()
    refused(lambda x: net(x), td.ones(2), match=r"net\['calls'\]|calls")

    class Kind:
        count = 0

    def g(x):
        Kind.count += 1
        return x * 2

    refused(g, td.ones(2), match="Kind changes while it runs")


def test_python_and_numpy_random_numbers_and_clocks():
    refused(lambda x: x * random.random(), td.ones(2), match="random")
    refused(lambda x: x * float(np.random.rand()), td.ones(2), match="numpy|mtrand|rand")
    refused(lambda x: x * time.time(), td.ones(2), match="time.time")


def test_pure_functions_of_c_are_no_effect():
    f = warmed(lambda x: x * math.sqrt(4.0) + max(len(ITEMS), 1), td.ones(2))
    assert f(td.ones(2)).tolist() == [4, 4]


def test_numpy_arrays():
    array = np.ones(2, np.float32)
    refused(lambda x: x + td.from_numpy(array), td.ones(2), match="array, a numpy.ndarray")


def test_reading_a_value():
    for fn in (
        lambda x: x * 2 if x.sum() > 0 else x,
        lambda x: (x * 2).sum().item(),
        lambda x: x * x[0].item(),
        lambda x: (x * 2).tolist(),
        lambda x: x * float(x.sum()),
    ):
        with pytest.raises(td.TandemError, match="the value of a tensor is read") as caught:
            td.compile(fn, replay=True)(td.ones(2))
        assert "test_observe.py" in str(caught.value)


def test_an_object_that_is_made_at_every_call():
    class Box:
        pass

    def f(x):
        box = Box()
        box.value = x * 2
        return box

    refused(f, td.ones(2), match="is a Box, an object that it makes")


def test_a_generator_that_is_seeded():
    def f(x):
        td.manual_seed(3)
        return x * td.rand(2)

    refused(f, td.ones(2), match="seeds a generator")


def test_a_mode_that_is_left_changed():
    def f(x):
        td.set_grad_enabled(False)
        return x * 2

    try:
        with pytest.raises(UnsupportedError, match="changes a mode"):
            g = td.compile(f, replay=True)
            for _ in range(3):
                td.set_grad_enabled(True)
                g(td.ones(2))
    finally:
        td.set_grad_enabled(True)


def test_iterators_and_thread_locals():
    numbers = iter(range(100))
    refused(lambda x: x * next(numbers), td.ones(2), match="range_iterator")
    local = threading.local()
    local.scale = 2
    refused(lambda x: x * local.scale, td.ones(2), match="_local")

    class Own(random.Random):
        pass

    own = Own(3)
    refused(lambda x: x * own.random(), td.ones(2), match="_random")

    class Queue(deque):
        pass

    queue = Queue([1.0])
    refused(lambda x: x * queue[0], td.ones(2), match="Queue")


def test_lists_and_dicts_of_classes_of_their_own():
    class List(list):
        pass

    class Dict(dict):
        def __missing__(self, key):
            return 1.0

    numbers, named = List([1.0]), Dict()
    f = warmed(lambda x: x * numbers[0] * named["a"], td.ones(2))
    numbers[0] = 2.0
    assert f(td.ones(2)).tolist() == [2, 2]
    named["a"] = 3.0
    assert f(td.ones(2)).tolist() == [6, 6]


def test_addresses():
    refused(lambda x: x * (x._version % 2), td.ones(2), match="looks at memory itself")
    with pytest.raises(td.TandemError, match="value of a tensor is read"):
        td.compile(lambda x: x * (x.data_ptr() % 2), replay=True)(td.ones(2))


class Finalized:
    def __init__(self):
        self.itself = self  # garbage that only the collector finds

    def __del__(self):
        CALLS.append(1)


def test_finalizers_of_other_objects_are_no_part_of_a_call():
    before, observed = gc.get_threshold(), Observation()
    try:
        gc.disable()
        garbage = [Finalized() for _ in range(10)]
        del garbage
        gc.set_threshold(gc.get_count()[0] + 50)  # the collector is due in the middle of the call
        gc.enable()
        observed.call(lambda: [[] for _ in range(100)], (), {})
        assert gc.isenabled()
    finally:
        gc.set_threshold(*before)
    assert Finalized.__del__.__code__ not in observed.seen
