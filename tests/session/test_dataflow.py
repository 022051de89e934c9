"""Branches and loops wired by hand from primitives, run by the tagged executor."""

import threading

import numpy as np
import pytest

import tandem as td
from tests.session.loops import counting_loop, ops


@pytest.fixture
def graph():
    with td.Graph() as g:
        yield g


def scalar(name="x", dtype=td.float32):
    return td.placeholder(dtype, (), name=name)


def outcome(session):
    return next(reversed(session._programs.values())).last_outcome


def test_partial_execution_leaves_branches_out(graph):
    x, p = scalar(), scalar("p", td.bool)
    merged = ops.merge([*ops.switch(x * 2, p)]).output
    other = x + 1
    session = td.Session(graph)
    assert 2 == session.run(other, {x: 1}).item()  # p is not needed
    assert 7 == session.run(merged, {x: 1, merged: 7}).item()  # fed: nothing runs
    with pytest.raises(td.ValueRangeError, match="must be fed"):
        session.run(merged, {x: 1})


def test_python_functions_run_in_live_branches_only(graph):
    calls = []
    x, p = scalar(), scalar("p", td.bool)
    no, yes = ops.switch(x, p)
    called = td.py_func(lambda a: calls.append(float(a)) or a * 10, [yes], td.float32, ())
    merged = ops.merge([no, called]).output
    session = td.Session(graph)
    assert 3 == session.run(merged, {x: 3, p: False}).item() and calls == []
    assert 30 == session.run(merged, {x: 3, p: True}).item() and calls == [3.0]


# -- loops


@pytest.mark.parametrize("n", [0, 1, 7, 1000])
def test_a_loop(graph, n):
    limit = scalar("n", td.int32)
    result, _ = counting_loop(td.tensor(0, dtype=td.int32), limit)
    session = td.Session(graph)
    assert n == session.run(result, {limit: n}).item()
    assert 2 * n + 1 == outcome(session).executed


def test_several_loop_variables_and_a_matrix(graph):
    n = scalar("n", td.int32)
    a = td.placeholder(td.float32, (3, 3))
    frame = "power"
    bound = ops.enter(n, frame, is_constant=True)
    m = ops.enter(a, frame, is_constant=True)
    i = ops.merge([ops.enter(td.tensor(0, dtype=td.int32), frame)]).output
    x = ops.merge([ops.enter(td.eye(3), frame)]).output
    go_on = ops.loop_cond(i < bound)
    _, i_body = ops.switch(i, go_on)
    x_out, x_body = ops.switch(x, go_on)
    ops.close_loop(i, i_body + 1)
    ops.close_loop(x, td.tanh(x_body @ m) + td.ones(3, 3))
    result = ops.exit(x_out).sum()
    matrix = np.random.default_rng(0).standard_normal((3, 3)).astype("f") * 0.4
    expected = np.eye(3, dtype="f")
    for _ in range(6):
        expected = np.tanh(expected @ matrix) + 1
    np.testing.assert_allclose(td.Session(graph).run(result, {n: 6, a: matrix}).item(), expected.sum(), rtol=1e-5)


def test_sizes_of_loop_variables_may_change_if_declared(graph):
    n = scalar("n", td.int32)
    frame = "grow"
    bound = ops.enter(n, frame, is_constant=True)
    x = ops.merge([ops.enter(td.ones(1), frame)], shape=(None,)).output
    out, body = ops.switch(x, ops.loop_cond(x.sum() < bound))
    ops.close_loop(x, td.concat([body, body]))
    result = ops.exit(out)
    assert [1.0] * 16 == td.Session(graph).run(result, {n: 9}).tolist()
    y = ops.merge([ops.enter(td.ones(1), "fixed")]).output
    with pytest.raises(td.ShapeError, match="declare sizes that change"):
        ops.close_loop(y, td.concat([y, y]))


def test_nested_loops(graph):
    n = scalar("n", td.int32)
    zero = td.tensor(0, dtype=td.int32)
    outer = "outer"
    bound = ops.enter(n, outer, is_constant=True)
    start = ops.enter(zero, outer, is_constant=True)
    i, total = (ops.merge([ops.enter(zero, outer)]).output for _ in range(2))
    go_on = ops.loop_cond(i < bound)
    _, i_body = ops.switch(i, go_on)
    t_out, t_body = ops.switch(total, go_on)
    inner, _ = counting_loop(start, i_body * 2, "inner", lambda j: j + 2)
    ops.close_loop(i, i_body + 1)
    ops.close_loop(total, t_body + inner)
    result = ops.exit(t_out)
    assert sum(2 * i for i in range(12)) == td.Session(graph).run(result, {n: 12}).item()


def test_a_branch_in_a_loop(graph):
    x0 = scalar("x", td.int64)
    frame = "collatz"
    x = ops.merge([ops.enter(x0, frame)]).output
    count = ops.merge([ops.enter(td.tensor(0), frame)]).output
    go_on = ops.loop_cond(td.not_equal(x, 1))
    _, x_body = ops.switch(x, go_on)
    c_out, c_body = ops.switch(count, go_on)
    even, odd = ops.switch(x_body, td.equal(x_body % 2, 1))
    ops.close_loop(x, ops.merge([even // 2, odd * 3 + 1]).output)
    ops.close_loop(count, c_body + 1)
    steps = ops.exit(c_out)
    assert 111 == td.Session(graph).run(steps, {x0: 27}).item()


def test_a_loop_in_a_branch(graph):
    x, p, n = scalar("x", td.int32), scalar("p", td.bool), scalar("n", td.int32)
    no, yes = ops.switch(x, p)
    bound = ops.switch(n, p).output_true
    looped, _ = counting_loop(yes, bound)
    merged = ops.merge([no, looped]).output
    session = td.Session(graph)
    assert 9 == session.run(merged, {x: 2, p: True, n: 9}).item()
    assert 2 == session.run(merged, {x: 2, p: False, n: 9}).item()
    assert 0 == outcome(session).executed


@pytest.mark.parametrize("parallel", [1, 4])
def test_iterations_in_flight_are_bounded(graph, parallel):
    """The counter runs ahead of a Python function that holds iterations up."""
    n = scalar("n", td.int32)
    frame = "ahead"
    bound = ops.enter(n, frame, is_constant=True, parallel_iterations=parallel)
    zero = td.tensor(0, dtype=td.int32)
    i, total = (ops.merge([ops.enter(zero, frame, parallel_iterations=parallel)]).output for _ in range(2))
    go_on = ops.loop_cond(i < bound)
    _, i_body = ops.switch(i, go_on)
    t_out, t_body = ops.switch(total, go_on)
    ops.close_loop(i, i_body + 1)
    ops.close_loop(total, t_body + td.py_func(lambda a: a * a, [i_body], td.int32, ()))
    session = td.Session(graph)
    assert sum(i * i for i in range(30)) == session.run(ops.exit(t_out), {n: 30}).item()
    assert 1 <= outcome(session).most_iterations <= parallel


def test_random_numbers_in_a_loop_differ_and_follow_the_seed(graph):
    n = scalar("n", td.int32)
    frame = "draw"
    bound = ops.enter(n, frame, is_constant=True)
    i = ops.merge([ops.enter(td.tensor(0, dtype=td.int32), frame)]).output
    x = ops.merge([ops.enter(td.zeros(0), frame)], shape=(None,)).output
    go_on = ops.loop_cond(i < bound)
    _, i_body = ops.switch(i, go_on)
    x_out, x_body = ops.switch(x, go_on)
    ops.close_loop(i, i_body + 1)
    ops.close_loop(x, td.concat([x_body, td.rand(2)]))
    drawn = ops.exit(x_out)
    session = td.Session(graph)
    td.manual_seed(5)
    first, second = session.run(drawn, {n: 10}).tolist(), session.run(drawn, {n: 10}).tolist()
    assert 20 == len(set(first)) and first != second
    td.manual_seed(5)
    assert first == td.Session(graph).run(drawn, {n: 10}).tolist()


# -- state


def test_variables_in_branches_and_loops(graph):
    v = td.Variable(td.zeros(2), name="v")
    count = td.Variable(td.tensor(0, dtype=td.int32), name="count")
    init = td.global_variables_initializer()
    p, n = scalar("p", td.bool), scalar("n", td.int32)
    one = ops.switch(td.ones(2), p).output_true
    added = v.assign_add(one)
    result, _ = counting_loop(td.tensor(0, dtype=td.int32), n, step=lambda i: i + 1 + 0 * count.assign_add(i * 0 + 1))
    session = td.Session(graph)
    session.run(init)
    session.run(td.group(added), {p: False})
    assert [0, 0] == session.run(v).tolist()
    assert [1, 1] == session.run(added, {p: True}).tolist()
    assert [1, 1] == session.run(v).tolist()
    assert [25, 25] == [t.item() for t in session.run([result, count], {n: 25})]
    assert 25 == session.run(count).item()


def test_errors_in_a_loop_name_the_node(graph):
    n = scalar("n", td.int32)

    def step(i):
        return i + td.gather(td.tensor([1, 1, 1], dtype=td.int32), 0, i.reshape(1)).sum().astype(td.int32)

    result, _ = counting_loop(td.tensor(0, dtype=td.int32), n, step=step)
    session = td.Session(graph)
    assert 3 == session.run(result, {n: 3}).item()
    with pytest.raises(td.IndexRangeError):
        session.run(result, {n: 10})
    assert 3 == session.run(result, {n: 3}).item()


def test_python_errors_come_out(graph):
    n = scalar("n", td.int32)

    def fail(a):
        if a == 3:
            raise KeyError("three")
        return a

    result, _ = counting_loop(td.tensor(0, dtype=td.int32), n, step=lambda i: td.py_func(fail, [i], td.int32, ()) + 1)
    with pytest.raises(KeyError, match="three"):
        td.Session(graph).run(result, {n: 10})


def test_many_threads_run_one_loop(graph):
    n = scalar("n", td.int32)
    total = td.Variable(td.tensor(0, dtype=td.int32), name="total")
    init = td.global_variables_initializer()
    result, _ = counting_loop(td.tensor(0, dtype=td.int32), n)
    added = total.assign_add(result)
    session = td.Session(graph)
    session.run(init)
    failures = []

    def work(k):
        try:
            for j in range(10):
                assert 50 + j == session.run(result, {n: 50 + j}).item()
                session.run(added, {n: k})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == []
    assert 10 * sum(range(5)) == session.run(total).item()


def test_closing_a_session_ends_a_loop(graph):
    n = scalar("n", td.int32)
    result, _ = counting_loop(td.tensor(0, dtype=td.int32), n, step=lambda i: i * 1)  # for ever
    session = td.Session(graph)
    caught = []

    def work():
        try:
            session.run(result, {n: 1})
        except td.CancelledError as error:
            caught.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    while not session._waiting:
        pass
    session.close()
    thread.join(300)
    assert not thread.is_alive() and "closed" in caught[0]
    with pytest.raises(td.ValueRangeError, match="the session is closed"):
        session.run(n, {n: 1})


def test_expensive_iterations_side_by_side(graph):
    """Bodies that take long enough for helper threads, from several runs at once; sums come out the same."""
    n = scalar("n", td.int32)
    a = td.placeholder(td.float32, (128, 128))
    frame = "heavy"
    bound, matrix = ops.enter(n, frame, is_constant=True), ops.enter(a, frame, is_constant=True)
    i = ops.merge([ops.enter(td.tensor(0, dtype=td.int32), frame)]).output
    total = ops.merge([ops.enter(td.tensor(0.0), frame)]).output
    go_on = ops.loop_cond(i < bound)
    _, i_body = ops.switch(i, go_on)
    t_out, t_body = ops.switch(total, go_on)
    ops.close_loop(i, i_body + 1)
    scaled = matrix * i_body.astype(td.float32)
    ops.close_loop(total, t_body + td.tanh(scaled @ matrix).sum() + td.sin(matrix @ scaled).sum())
    result = ops.exit(t_out)
    session = td.Session(graph)
    values = np.random.default_rng(0).standard_normal((128, 128)).astype("f") * 0.05
    with td.session.graph.outside_graphs():
        expected = 0.0
        x = td.tensor(values)
        for k in range(20):
            expected += (td.tanh((x * float(k)) @ x).sum() + td.sin(x @ (x * float(k))).sum()).item()
    got = []

    def work():
        for _ in range(2):
            got.append(session.run(result, {n: 20, a: values}).item())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert 4 == len(got)
    np.testing.assert_allclose(got, expected, rtol=1e-3)
    assert len(set(got)) == 1  # whatever ran where
