"""Hand-wired branches and loops, queues and Python functions with tensors of a CUDA device."""

import threading

import numpy as np
import pytest

import tandem as td

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")]
ops = td.graph_ops


@pytest.fixture
def graph():
    with td.Graph() as g:
        yield g


def there(values, dtype=td.float32):
    return td.tensor(values, dtype=dtype, device="cuda")


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("taken", [False, True])
def test_a_switch_takes_its_predicate_from_either_side(graph, taken, on_device):
    x, p = td.placeholder(td.float32, (3,), name="x"), td.placeholder(td.bool, (), name="p")
    no, yes = ops.switch(x, p)
    result, index = ops.merge([no * 2.0, yes + 1.0])
    predicate = there(taken, td.bool) if on_device else taken
    got, which = td.Session(graph).run([result, index], {x: there([1.0, 2.0, 3.0]), p: predicate})
    assert got.device == "cuda:0"
    assert ([2.0, 3.0, 4.0] if taken else [2.0, 4.0, 6.0]) == got.tolist()
    assert int(taken) == which.item()


def test_a_loop_whose_condition_is_on_the_device(graph):
    x, limit = td.placeholder(td.float32, (3,), name="x"), td.placeholder(td.float32, (), name="limit")
    bound = ops.enter(limit, "loop", is_constant=True)
    v = ops.merge([ops.enter(x, "loop")]).output
    out, body = ops.switch(v, ops.loop_cond(v.sum() < bound))
    ops.close_loop(v, body * 2.0 + td.tensor([1.0, 0.0, 0.0]))
    result = ops.exit(out)
    session = td.Session(graph)
    expected = np.array([1.0, 2.0, 3.0], np.float32)
    while expected.sum() < 1000:
        expected = expected * 2 + np.array([1, 0, 0], np.float32)
    for bounded in (there(1000.0), td.tensor(1000.0)):
        got = session.run(result, {x: there([1.0, 2.0, 3.0]), limit: bounded})
        assert got.device == "cuda:0"
        np.testing.assert_allclose(got.cpu().numpy(), expected)


def test_feeds_on_both_sides_work_apart_and_are_refused_together(graph):
    x, y = td.placeholder(td.float32, (2,), name="x"), td.placeholder(td.float32, (2,), name="y")
    p = td.placeholder(td.bool, (), name="p")
    apart = ops.merge(ops.switch(x, p)).output * 2.0, ops.merge(ops.switch(y, p)).output * 3.0
    together = ops.merge(ops.switch(x, p)).output + y
    session = td.Session(graph)
    feeds = {x: there([1.0, 2.0]), y: td.tensor([1.0, 2.0]), p: True}
    a, b = session.run(list(apart), feeds)
    assert ("cuda:0", "cpu") == (a.device, b.device)
    assert ([2.0, 4.0], [3.0, 6.0]) == (a.tolist(), b.tolist())
    with pytest.raises(td.DeviceError, match="different devices"):
        session.run(together, feeds)


def test_variables_on_the_device_are_written_in_loops(graph):
    with td.device("cuda"):
        v = td.Variable(td.zeros(3), name="v")
        n = td.placeholder(td.int32, (), name="n")
        i = ops.merge([ops.enter(td.tensor(0, dtype=td.int32), "loop")]).output
        bound = ops.enter(n, "loop", is_constant=True)
        out, body = ops.switch(i, ops.loop_cond(i < bound))
        with td.control_dependencies([body]):
            added = v.assign_add(td.tensor([1.0, 2.0, 3.0]))
        with td.control_dependencies([added]):
            ops.close_loop(i, body + 1)
        count = ops.exit(out)
        init = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(init)
    assert 5 == session.run(count, {n: 5}).item()
    assert [5.0, 10.0, 15.0] == session.run(v).tolist()


def test_queues_hold_tensors_of_any_device():
    queue = td.FIFOQueue(10, td.float32, (2,))
    queue.enqueue(there([1.0, 2.0]))
    queue.enqueue_many(there([[3.0, 4.0], [5.0, 6.0]]))
    first = queue.dequeue()
    assert ("cuda:0", [1.0, 2.0]) == (first.device, first.tolist())
    rest = queue.dequeue_many(2)
    assert ("cuda:0", [[3.0, 4.0], [5.0, 6.0]]) == (rest.device, rest.tolist())
    queue.enqueue(there([1.0, 2.0]))
    queue.enqueue(td.tensor([1.0, 2.0]))
    with pytest.raises(td.DeviceError, match=r"dequeue_many: elements of queue .* are on different devices"):
        queue.dequeue_many(2)


def test_padding_and_priorities_on_the_device():
    padded = td.PaddingFIFOQueue(10, [td.float32], [(None,)])
    padded.enqueue([there([1.0])])
    padded.enqueue([there([2.0, 3.0])])
    rows = padded.dequeue_many(2)
    assert [[1.0, 0.0], [2.0, 3.0]] == rows.tolist()
    first = td.PriorityQueue(10, [td.float32], [()])
    for priority in (3, 1, 2):
        first.enqueue([there(priority, td.int64), there(float(priority))])
    assert [1.0, 2.0, 3.0] == [first.dequeue()[1].item() for _ in range(3)]


def test_what_a_producer_thread_enqueues_on_its_stream_is_whole_for_the_consumer():
    queue = td.FIFOQueue(4, td.float32, (1 << 20,))

    def produce():
        with td.cuda.stream(td.cuda.Stream()):
            for k in range(16):
                queue.enqueue(td.zeros(1 << 20, device="cuda") + float(k))

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    for k in range(16):
        assert float(k) == queue.dequeue().min().item()
    thread.join()


def test_queues_as_nodes(graph):
    x = td.placeholder(td.float32, (2,), name="x")
    queue = td.FIFOQueue(10, td.float32, (2,))
    put, got = queue.enqueue(x * 2.0), queue.dequeue() + 1.0
    session = td.Session(graph)
    session.run(put, {x: there([1.0, 2.0])})
    result = session.run(got)
    assert ("cuda:0", [3.0, 5.0]) == (result.device, result.tolist())


def test_py_func_gets_copies_on_the_host_and_gives_results_back(graph):
    x = td.placeholder(td.float32, (2,), name="x")
    y = td.py_func(lambda a: a + 1, [x * 2.0], td.float32, (2,)) * x
    got = td.Session(graph).run(y, {x: there([1.0, 2.0])})
    assert ("cuda:0", [3.0, 10.0]) == (got.device, got.tolist())


def test_constants_of_a_graph_go_where_its_feeds_are(graph):
    x = td.placeholder(td.float32, (2,), name="x")
    got = td.Session(graph).run(x + td.tensor([1.0, 2.0]), {x: there([1.0, 2.0])})
    assert ("cuda:0", [2.0, 4.0]) == (got.device, got.tolist())
