"""Tensors in several processes."""

import copy
import os
import pickle

import pytest

import tandem as td
import tandem.multiprocessing as mp
from tandem import _runtime
from tests.multiprocessing import work

CONTEXTS = [mp.get_context(name) for name in ("spawn", "forkserver", "fork")]
NAMES = ["spawn", "forkserver", "fork"]


def finish(process):
    process.join(60)
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


def test_tensors_in_queues_are_the_same_memory():
    context = mp.get_context("forkserver")
    queue, results = context.Queue(), context.Queue()
    process = context.Process(target=work.add_one, args=(queue, results))
    process.start()
    x, y = td.zeros(4).share_memory_(), td.zeros(2, 3)
    queue.put(x)
    results.get(timeout=60)
    queue.put(y)  # moves to shared memory as it is sent
    queue.put(x[1:3])
    results.get(timeout=60)
    results.get(timeout=60)
    queue.put(None)
    finish(process)
    assert [1.0, 2.0, 2.0, 1.0] == x.tolist()
    assert y.is_shared()
    assert 6.0 == float(y.sum())


def test_tensors_from_another_process():
    context = mp.get_context("forkserver")
    queue = context.JoinableQueue()
    process = context.Process(target=work.send_many, args=(queue,))
    process.start()
    for i in range(5):
        found = queue.get(timeout=60)
        assert (i, [float(i)] * 3, [1.0, 1.0], (0,)) == (
            found["i"],
            found["x"].tolist(),
            found["half"].tolist(),
            found["empty"].shape,
        )
        queue.task_done()
    finish(process)


def test_nothing_is_left_of_a_process_that_was_killed():
    before = set(os.listdir("/dev/shm"))
    context = mp.get_context("forkserver")
    x = td.zeros(1_000_000).share_memory_()
    process = context.Process(target=work.die, args=(x,))
    process.start()
    process.join(60)
    assert -9 == process.exitcode
    assert 5.0 == float(x[0])
    assert set() == set(os.listdir("/dev/shm")) - before


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


def test_descriptors_do_not_pile_up():
    count = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        td.zeros(10).share_memory_()
    assert len(os.listdir("/proc/self/fd")) <= count + 1
