"""Hand-wired graphs, queues and Python functions with tensors of a device, on the stand-in: where things run and what is copied.
What they compute is tested in test_dataflow.py, on a device that computes."""

import shutil

import pytest

from tests.gpu.test_stand_in import run

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

HEAD = """
ops = td.graph_ops
def there(values, dtype=td.float32):
    return td.tensor(values, dtype=dtype, device="cuda")
graph = td.Graph()
session = td.Session(graph)
graph.__enter__()
x, y = td.placeholder(td.float32, (2,), name="x"), td.placeholder(td.float32, (2,), name="y")
p = td.placeholder(td.bool, (), name="p")
"""


def test_branches_run_where_their_operands_are_and_predicates_are_read_back(tmp_path):
    run(
        HEAD
        + """
no, yes = ops.switch(x, p)
taken, index = ops.merge([no * 2.0, yes])
for value in (True, False):
    for predicate in (value, there(value, td.bool)):
        library.stand_in_clear()
        got, which = session.run([taken, index], {x: there([1.0, 2.0]), p: predicate})
        assert got.device == "cuda:0" and which.item() == int(value)
        assert len(launched()) == int(not value), launched()
        if value:
            assert got.tolist() == [1.0, 2.0]
apart = [ops.merge(ops.switch(x, p)).output * 2.0, ops.merge(ops.switch(y, p)).output * 3.0]
feeds = {x: there([1.0, 2.0]), y: td.tensor([1.0, 2.0]), p: True}
a, b = session.run(apart, feeds)
assert (a.device, b.device) == ("cuda:0", "cpu") and b.tolist() == [3.0, 6.0]
try:
    session.run(ops.merge(ops.switch(x, p)).output + y, feeds)
except td.DeviceError as error:
    assert "different devices: cuda:0, cpu" in str(error), error
else:
    raise AssertionError
""",
        tmp_path,
    )


def test_a_loop_reads_its_condition_back_and_counts_on_the_host(tmp_path):
    run(
        HEAD
        + """
n = td.placeholder(td.int32, (), name="n")
i = ops.merge([ops.enter(td.tensor(0, dtype=td.int32), "loop")]).output
v = ops.merge([ops.enter(x, "loop")]).output
condition = ops.loop_cond(i < ops.enter(n, "loop", is_constant=True))
i_out, i_body = ops.switch(i, condition)
v_out, v_body = ops.switch(v, condition)
ops.close_loop(i, i_body + 1)
ops.close_loop(v, td.cumsum(td.cumsum(v_body * 2.0, 0) + td.tensor([1.0, 2.0]), 0))
library.stand_in_clear()
count, value = session.run([ops.exit(i_out), ops.exit(v_out)], {x: there([1.0, 2.0]), n: 5})
assert count.device == "cpu" and count.item() == 5
made = counts()
assert value.device == "cuda:0" and made["launches"] == 4 * (5 - made["graphs"]), made
assert made["graphs"] >= 2  # later iterations replay what the first ones launched
""",
        tmp_path,
    )


def test_queues_copy_on_the_device_and_keep_the_order_of_streams(tmp_path):
    run(
        HEAD
        + """
graph.__exit__(None, None, None)
queue = td.FIFOQueue(10, td.float32, (2,))
given = there([1.0, 2.0])
queue.enqueue(given)
queue.enqueue_many(there([[3.0, 4.0], [5.0, 6.0]]))
first = queue.dequeue()
assert first.device == "cuda:0" and first.tolist() == [1.0, 2.0] and first.data_ptr() != given.data_ptr()
with td.cuda.stream(td.cuda.Stream()):
    rest = queue.dequeue_many(2)
assert rest.device == "cuda:0" and rest.tolist() == [[3.0, 4.0], [5.0, 6.0]]
queue.enqueue(given)
queue.enqueue(given.cpu())
try:
    queue.dequeue_many(2)
except td.DeviceError as error:
    assert "are on different devices, component 0: cuda:0, cpu" in str(error), error
else:
    raise AssertionError
first = td.PriorityQueue(10, [td.float32], [()])
for priority in (3, 1, 2):
    first.enqueue([there(priority, td.int64), there(float(priority))])
assert [first.dequeue()[1].item() for _ in range(3)] == [1.0, 2.0, 3.0]
padded = td.PaddingFIFOQueue(10, [td.float32], [(None,)])
padded.enqueue([there([1.0])])
padded.enqueue([there([2.0, 3.0])])
assert padded.dequeue_many(2).device == "cuda:0"
with graph:
    put, got = queue.enqueue(x), queue.dequeue()
session.run(put, {x: there([7.0, 8.0])})
assert session.run(got).tolist() == [7.0, 8.0]
""",
        tmp_path,
    )


def test_py_func_copies_to_the_host_and_back(tmp_path):
    run(
        HEAD
        + """
z = td.py_func(lambda a: a + 1, [x], td.float32, (2,))
got = session.run(z, {x: there([1.0, 2.0])})
assert got.device == "cuda:0" and got.tolist() == [2.0, 3.0]
assert session.run(z * x, {x: there([1.0, 2.0])}).device == "cuda:0"
assert session.run(x + td.tensor([1.0, 2.0]), {x: there([1.0, 2.0])}).device == "cuda:0"
""",
        tmp_path,
    )
