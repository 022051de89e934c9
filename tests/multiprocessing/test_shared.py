"""Tensors in several processes."""

import copy
import os
import pickle

import pytest

import tandem as td
import tandem.multiprocessing as mp
from tests.multiprocessing import work
from tests.processes import left_in_memory

CONTEXTS = [mp.get_context(name) for name in ("spawn", "forkserver", "fork")]


NAMES = ["spawn", "forkserver", "fork"]


def finish(process):
    process.join(300)
    assert 0 == process.exitcode


@pytest.mark.parametrize("context", CONTEXTS, ids=NAMES)
def test_a_module_shared_with_another_process_is_one_module(context):
    module = td.nn.Sequential(td.nn.Linear(3, 2), td.nn.Linear(2, 1)).share_memory()
    assert all(p.is_shared() for p in module.parameters())
    process = context.Process(target=work.fill, args=(module, 7.0))
    process.start()
    finish(process)
    assert {7.0} == {v for p in module.parameters() for v in p.detach().flatten().tolist()}
    assert all(p.is_leaf and p.requires_grad for p in module.parameters())


def test_nothing_is_left_of_a_process_that_was_killed():
    before = set(os.listdir("/dev/shm"))
    context = mp.get_context("forkserver")
    x = td.zeros(1_000_000).share_memory_()
    process = context.Process(target=work.die, args=(x,))
    process.start()
    process.join(300)
    assert -9 == process.exitcode
    assert 5.0 == float(x[0])
    assert left_in_memory(before) == set()


def test_sharing_keeps_values_identity_and_gradients():
    w = td.nn.Parameter(td.tensor([1.0, 2.0]))
    (w * w).sum().backward()
    before = w
    assert w.share_memory_() is before
    assert ([1.0, 2.0], [2.0, 4.0]) == (w.tolist(), w.grad.tolist())
    assert w.grad.is_shared()
    assert w.share_memory_() is w  # twice is once
    with pytest.raises(RuntimeError, match="only leaves can be shared"):
        (w * 2).share_memory_()
    assert not copy.deepcopy(w).is_shared()
    assert [1.0, 2.0] == pickle.loads(pickle.dumps(w)).tolist()
    optimizer = td.optim.SGD([w], lr=0.5)
    optimizer.step()
    assert [0.0, 0.0] == w.tolist()


def test_shared_tensors_compute_as_others_do():
    with pytest.raises(RuntimeError, match="a view"):
        td.zeros(4)[1:].share_memory_()
    x = td.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]).share_memory_()
    assert (x @ x.T).tolist() == (x.clone() @ x.clone().T).tolist()
    x += 1
    assert [1.0, 4.0] == x[:, 0].tolist()
