"""Deferred tensors and the garbage collector: see the note of that name in src/tensor/deferred.h."""

import gc
import weakref

import pytest

import tandem as td


def test_deferred_tensors_are_shown_to_the_collector_once_they_have_memory():
    x = td.ones(3, requires_grad=True)
    with td.autobatch():
        y, z = x * 2.0, x * 3.0
        view = z[1:]
        assert not any(map(gc.is_tracked, (y, z, view)))
        assert y.tolist() == [2.0] * 3 and gc.is_tracked(y)
    assert gc.is_tracked(z) and gc.is_tracked(view) and view.tolist() == [3.0] * 2


def test_captured_tensors_are_shown_to_the_collector_once_they_have_memory():
    made = td.compile(lambda x: (x * 2.0, x + 1.0))(td.ones(2))
    assert all(map(gc.is_tracked, made))


@pytest.mark.parametrize("fails", [False, True])
def test_a_cycle_through_a_deferred_tensor_is_collected(fails):
    class Note:
        pass

    note = Note()
    seen = weakref.ref(note)
    try:
        with td.autobatch():
            y = td.ones(2) * 2.0
            note.tensor, y.note = y, note
            if fails:
                raise KeyError
    except KeyError:
        pass
    del note, y
    gc.collect()
    assert seen() is None
