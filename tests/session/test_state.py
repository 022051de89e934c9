"""Variables in graphs: updates of rows, order, atomicity; what a graph cannot do; how many programs a session keeps."""

import threading

import numpy as np
import pytest

import tandem as td
from tandem import session as s


@pytest.fixture
def graph():
    with td.Graph() as g:
        yield g


def started(graph):
    with graph:
        init = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(init)
    return session


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (s.scatter_update, [[7, 8], [2, 2], [5, 6]]),
        (s.scatter_add, [[9, 10], [2, 2], [7, 8]]),
        (s.scatter_sub, [[-5, -6], [2, 2], [-3, -4]]),
        (s.scatter_mul, [[14, 16], [2, 2], [10, 12]]),
        (s.scatter_div, [[2 / 7, 2 / 8], [2, 2], [2 / 5, 2 / 6]]),
        (s.scatter_max, [[7, 8], [2, 2], [5, 6]]),
        (s.scatter_min, [[2, 2], [2, 2], [2, 2]]),
    ],
)
def test_updates_of_rows(graph, function, expected):
    v = td.Variable(td.full((3, 2), 2.0))
    rows = td.placeholder(td.int32, (None,))
    made = function(v, rows, td.tensor([[5.0, 6.0], [7.0, 8.0]]), use_locking=False)
    session = started(graph)
    np.testing.assert_allclose(session.run(made, {rows: [2, 0]}).numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(session.run(v).numpy(), expected, rtol=1e-6)


def test_rows_named_more_than_once(graph):
    v = td.Variable(td.zeros(4))
    added = s.scatter_add(v, [1, 1, 3], [1.0, 2.0, 4.0])
    one = s.scatter_sub(v, [0, 0], 1.0)
    session = started(graph)
    assert [0, 3, 0, 4] == session.run(added).tolist()
    assert [-2, 3, 0, 4] == session.run(one).tolist()


def test_rows_are_divided_not_multiplied_by_a_reciprocal(graph):
    whole = td.Variable(td.tensor([12, 9, -103], dtype=td.int32))
    small = td.Variable(td.tensor([1e-30, 7.0, 5.0]))
    session = started(graph)
    assert [3, 9, -20] == session.run(s.scatter_div(whole, [0, 2], [4, 5])).tolist()
    assert [1, 9, -5] == session.run(s.scatter_div(whole, [0, 2, 0], [2, 4, 1])).tolist()
    divided = session.run(s.scatter_div(small, [0, 2, 2], [1e-39, 3.0, 3.0])).numpy()
    by = np.array([np.float32(1e-39), 1, 9], "d")
    np.testing.assert_array_equal(divided, (np.array([1e-30, 7, 5], "f") / by).astype("f"))


def test_what_scatter_refuses(graph):
    v = td.Variable(td.zeros(4, 2), name="v")
    with pytest.raises(td.ShapeError, match=r"updates are \(2,\).*they must be \(2, 2\), or one number"):
        s.scatter_add(v, [0, 1], [1.0, 2.0])
    with pytest.raises(td.DTypeError, match="must be integers"):
        s.scatter_add(v, [0.5], 1.0)
    with pytest.raises(td.DTypeError, match="is no variable"):
        s.scatter_update(v + 1, [0], 1.0)
    session = started(graph)
    with pytest.raises(td.IndexRangeError):
        session.run(s.scatter_update(v, [4], 1.0))


def test_program_order_with_row_updates(graph):
    v = td.Variable(td.zeros(3))
    before = v.sum()
    with td.control_dependencies([s.scatter_add(v, [0], 1.0), s.scatter_mul(v, [0], 5.0)]):
        after = v.sum() + 0
    session = started(graph)
    assert [0, 5] == [t.item() for t in session.run([before, after])]


def test_no_update_of_rows_is_lost(graph):
    v = td.Variable(td.zeros(8))
    row = td.placeholder(td.int64, (1,))
    added = s.scatter_add(v, row, 1.0)
    session = started(graph)

    def work(k):
        for i in range(50):
            session.run(added, {row: [(k + i) % 8]})

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert 200 == session.run(v).numpy().sum()


def test_a_write_is_never_seen_by_half(graph):
    v = td.Variable(td.zeros(50000))
    to = td.placeholder(td.float32, ())
    written = v.assign(td.expand(to, (50000,)))
    low, high = v.min(), v.max()
    session = started(graph)
    stop, torn = threading.Event(), []

    def look():
        while not stop.is_set():
            a, b = session.run([low, high])
            if a.item() != b.item():
                torn.append((a.item(), b.item()))

    readers = [threading.Thread(target=look) for _ in range(3)]
    for t in readers:
        t.start()
    for k in range(100):
        session.run(written, {to: float(k)})
    stop.set()
    for t in readers:
        t.join()
    assert torn == []


def test_sizes_that_depend_on_values_are_refused_with_words(graph):
    x = td.placeholder(td.float32, (None,), name="x")
    for f in (lambda: x[x > 0], lambda: td.nonzero(x), lambda: x.nonzero(), lambda: td.masked_select(x, x > 0),
              lambda: td.argwhere(x)):  # fmt: skip
        with pytest.raises(td.UnsupportedError, match=r"depends on values(.|\n)*td\.where"):
            f()


def test_items_of_symbolic_tensors_cannot_be_assigned(graph):
    x = td.placeholder(td.float32, (3,), name="x")
    with pytest.raises(td.UnsupportedError, match=r"cannot be changed(.|\n)*td\.where"):
        x[0] = 1.0
    v = td.Variable(td.zeros(3))
    with pytest.raises(td.UnsupportedError, match=r"scatter_update"):
        v[0] = 1.0


def test_a_session_keeps_the_programs_used_last(graph):
    x = td.placeholder(td.float32, ())
    tensors = [x + k for k in range(6)]
    session = td.Session(graph)
    session.max_programs = 3
    for k, t in enumerate(tensors):
        assert k + 1 == session.run(t, {x: 1}).item()
        session.run(tensors[0], {x: 1})
    assert 3 == session.num_programs
    kept = {id(p.fetches[0]) for p in session._programs.values()}
    assert {id(tensors[0]), id(tensors[4]), id(tensors[5])} == kept


def test_a_write_before_a_python_function_happens_first_and_once(graph):
    v = td.Variable(td.tensor(0.0))
    seen = []
    added = v.assign_add(1.0)
    told = td.py_func(lambda a: seen.append(float(a)) or a, [added], td.float32, ())
    session = started(graph)
    for k in range(3):
        assert k + 1 == session.run(told).item()
    assert [1, 2, 3] == seen and 3 == session.run(v).item()


def test_gradients_on_both_sides_of_a_python_function_draw_the_same_numbers(graph):
    """A dropout mask that a Python function saw is the one that the gradient is taken through."""
    w = td.Variable(td.ones(64))
    count = td.Variable(td.tensor(0.0), trainable=False)
    counted = count.assign_add(1.0)
    hidden = td.dropout(w * 3, 0.5)
    with td.control_dependencies([counted]):
        outside = td.py_func(lambda a: a * 2, [hidden], td.float32, (64,))
    loss = (hidden * outside).sum()
    (slope,) = td.gradients(loss, [w])
    session = started(graph)
    h, g = session.run([hidden, slope])
    mask = (h.numpy() != 0).astype("f") * 2
    assert 0 < mask.sum() < 128
    np.testing.assert_allclose(
        g.numpy(), mask * 3 * h.numpy() * 2, rtol=1e-5
    )  # no gradient passes through the function
    assert 1 == session.run(count).item()
