"""Tensors in queues."""

import tandem as td
import tandem.multiprocessing as mp
from tests.multiprocessing import work
from tests.processes import open_files


def finish(process):
    process.join(300)
    assert 0 == process.exitcode


def test_tensors_in_queues_are_the_same_memory():
    context = mp.get_context("forkserver")
    queue, results = context.Queue(), context.Queue()
    process = context.Process(target=work.add_one, args=(queue, results))
    process.start()
    x, y = td.zeros(4).share_memory_(), td.zeros(2, 3)
    queue.put(x)
    results.get(timeout=300)
    queue.put(y)  # moves to shared memory as it is sent
    queue.put(x[1:3])
    results.get(timeout=300)
    results.get(timeout=300)
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
        found = queue.get(timeout=300)
        assert (i, [float(i)] * 3, [1.0, 1.0], (0,)) == (
            found["i"],
            found["x"].tolist(),
            found["half"].tolist(),
            found["empty"].shape,
        )
        queue.task_done()
    finish(process)


def test_descriptors_do_not_pile_up():
    count = len(open_files("/memfd:tandem "))
    for _ in range(20):
        td.zeros(10).share_memory_()
    assert len(open_files("/memfd:tandem ")) <= count + 2  # one that is open and mapped
