"""Branches and loops wired by hand from primitives, run by the tagged executor."""

import threading

import numpy as np
import pytest

import tandem as td
from tandem.graph.ir import revise

ops = td.graph_ops


@pytest.fixture
def graph():
    with td.Graph() as g:
        yield g


def scalar(name="x", dtype=td.float32):
    return td.placeholder(dtype, (), name=name)


def counting_loop(start, limit, frame="loop", step=None, parallel=10):
    """i = start; while i < limit: i = step(i). Gives (result, i inside the body)."""
    bound = ops.enter(limit, frame, is_constant=True, parallel_iterations=parallel)
    i = ops.merge([ops.enter(start, frame, parallel_iterations=parallel)]).output
    out, body = ops.switch(i, ops.loop_cond(i < bound))
    ops.close_loop(i, (step or (lambda b: b + 1))(body))
    return ops.exit(out), body


def outcome(session):
    return next(reversed(session._programs.values())).last_outcome


# -- branches


def test_the_classic_example(graph):
    x, y, z = scalar("x"), scalar("y"), scalar("z")
    less = x < y
    added = ops.switch(x, less).output_true + ops.switch(z, less).output_true
    squared = td.square(ops.switch(y, less).output_false)
    result, index = ops.merge([squared, added])
    session = td.Session(graph)
    for a, b, c in [(1, 2, 5), (3, 2, 5), (2, 2, -1)]:
        got, which = session.run([result, index], {x: a, y: b, z: c})
        assert (a + c if a < b else b * b, int(a < b)) == (got.item(), which.item())
        assert outcome(session).executed == 2  # the comparison and one branch


@pytest.mark.parametrize("taken", [False, True])
def test_switch_gives_one_live_and_one_dead_output(graph, taken):
    x, p = scalar(), scalar("p", td.bool)
    no, yes = ops.switch(x, p)
    dead, live = (no, yes) if taken else (yes, no)
    session = td.Session(graph)
    assert 3 == session.run(live, {x: 3, p: taken}).item()
    with pytest.raises(td.ValueRangeError, match=r"is dead in this run.*not taken") as caught:
        session.run([live, dead], {x: 3, p: taken})
    assert "test_dataflow.py" in str(caught.value)
    with pytest.raises(td.ValueRangeError, match="dead"):
        session.run(td.exp(dead) + live, {x: 3, p: taken})
    assert outcome(session).executed == 0


def test_merge_of_dead_inputs_is_dead(graph):
    x, p, q = scalar(), scalar("p", td.bool), scalar("q", td.bool)
    merged, index = ops.merge([ops.switch(x, p).output_true + 1, ops.switch(x, q).output_true + 2])
    session = td.Session(graph)
    assert [4, 0] == [t.item() for t in session.run([merged, index], {x: 3, p: True, q: False})]
    assert [5, 1] == [t.item() for t in session.run([merged, index], {x: 3, p: False, q: True})]
    with pytest.raises(td.ValueRangeError, match="dead"):
        session.run(merged, {x: 3, p: False, q: False})


def test_merge_of_different_sizes_has_an_unknown_one(graph):
    x, p = td.placeholder(td.float32, (4,)), scalar("p", td.bool)
    no, yes = ops.switch(x, p)
    merged = ops.merge([no[:2] * 2, yes]).output
    assert merged.get_shape() == (None,)
    total = merged.sum() / merged.shape[0]
    session = td.Session(graph)
    assert 3 == session.run(total, {x: [1, 2, 3, 4], p: False}).item()
    assert 2.5 == session.run(total, {x: [1, 2, 3, 4], p: True}).item()


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


def test_ordinary_nodes_between_primitives_are_one_plan(graph):
    x, p = td.placeholder(td.float32, (None,)), scalar("p", td.bool)
    no, yes = ops.switch(td.exp(x) * 2 + 1, p)
    merged = ops.merge([td.sin(no) + td.cos(no), td.sqrt(yes) / (1 + yes)]).output
    result = (merged * merged).sum()
    session = td.Session(graph)
    for taken in (True, False):
        a = np.linspace(0, 1, 5, dtype="f")
        b = np.exp(a) * 2 + 1
        c = np.sqrt(b) / (1 + b) if taken else np.sin(b) + np.cos(b)
        np.testing.assert_allclose(session.run(result, {x: a, p: taken}).item(), (c * c).sum(), rtol=1e-5)
        assert 3 == outcome(session).executed


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


def test_reads_and_writes_keep_their_order_around_primitives(graph):
    v = td.Variable(td.tensor(1.0), name="v")
    init = td.global_variables_initializer()
    p = scalar("p", td.bool)
    before = v * 10
    doubled = v.assign(v * 2)
    after = v * 10
    merged = ops.merge([*ops.switch(after, p)]).output
    session = td.Session(graph)
    session.run(init)
    assert [10, 2, 20, 20] == [t.item() for t in session.run([before, doubled, after, merged], {p: True})]


def test_a_loop_that_reads_is_over_before_a_later_write(graph):
    v = td.Variable(td.tensor(1, dtype=td.int32), name="v")
    init = td.global_variables_initializer()
    n = scalar("n", td.int32)
    first = v.assign_add(td.tensor(1, dtype=td.int32))  # 2, before the loop
    result, _ = counting_loop(td.tensor(0, dtype=td.int32), n, step=lambda i: i + v)
    last = v.assign(td.tensor(100, dtype=td.int32))
    session = td.Session(graph)
    for _ in range(5):
        session.run(init)
        got = session.run([first, result, last, v], {n: 40})
        assert [2, 40, 100, 100] == [t.item() for t in got]


# -- malformed wiring


def refused(graph, fetch, match, feeds=None):
    with pytest.raises(td.ValueRangeError, match=match) as caught:
        td.Session(graph).run(fetch, feeds or {})
    assert "test_dataflow.py" in str(caught.value)
    assert "  in '" in str(caught.value)


def test_values_do_not_cross_frames(graph):
    n, y = scalar("n", td.int32), scalar("y", td.int32)
    result, body = counting_loop(td.tensor(0, dtype=td.int32), n, step=lambda i: i + y)
    refused(graph, result, "values cross frames through Enter and Exit only", {n: 3, y: 1})
    _, body = counting_loop(td.tensor(0, dtype=td.int32), n, "second")
    refused(graph, body + n, "cross frames", {n: 3})
    refused(graph, body, "is fetched, but it is inside frame 'second'", {n: 3})


def test_parts_of_loops_stand_in_loops(graph):
    x = scalar()
    refused(graph, ops.exit(x), "an Exit stands outside of every loop", {x: 1})
    refused(graph, ops.merge([x, ops.next_iteration(x)]).output, "a NextIteration stands outside of every loop", {x: 1})
    refused(graph, ops.loop_cond(x < 1), "a LoopCond stands outside", {x: 1})


def test_a_merge_that_can_never_fire(graph):
    x = scalar()
    merged = ops.merge([x]).output
    ops.close_loop(merged, ops.next_iteration(merged + 1))
    revise(merged.node, "inputs", merged.node.inputs[1:])
    refused(graph, merged, "can never fire", {x: 1})
    with pytest.raises(td.ValueRangeError, match="can never fire"):
        ops.merge([])


def test_loops_without_an_end_or_a_way_out(graph):
    n = scalar("n")
    i = ops.merge([ops.enter(n, "f")]).output
    out, body = ops.switch(i, i < 3)
    ops.close_loop(i, body + 1)
    refused(graph, ops.exit(out), "has no LoopCond", {n: 1})
    j = ops.merge([ops.enter(n, "g")]).output
    k = ops.merge([ops.enter(n, "g")]).output
    out, body = ops.switch(j, ops.loop_cond(j + k < 3))
    ops.close_loop(j, body + 1)
    refused(graph, ops.exit(out), "none that comes round", {n: 1})
    inside = ops.enter(n, "h") + 1
    refused(graph, td.group(inside), "no Exit leads out of frame 'h'", {n: 1})


def test_a_value_of_the_first_iteration_only(graph):
    n = scalar("n")
    once = ops.enter(n, "f")
    i = ops.merge([ops.enter(n, "f")]).output
    out, body = ops.switch(i, ops.loop_cond(i < 3))
    ops.close_loop(i, body + once)
    refused(graph, ops.exit(out), "first iteration only", {n: 1})


def test_types_are_checked_when_building(graph):
    x = td.placeholder(td.float32, (2,))
    with pytest.raises(td.DTypeError, match="it must be a single bool"):
        ops.switch(x, x < 1)
    with pytest.raises(td.DTypeError, match="it must be a single bool"):
        ops.loop_cond(x.sum())
    with pytest.raises(td.DTypeError, match="one dtype and number of axes"):
        ops.merge([x, x.sum()])
    with pytest.raises(td.ValueRangeError, match="at least one iteration"):
        ops.enter(x, "f", parallel_iterations=0)


def test_gradients_do_not_pass_through_primitives_but_beside_them(graph):
    x, p = scalar(), scalar("p", td.bool)
    merged = ops.merge([*ops.switch(x * x, p)]).output
    with pytest.raises(td.UnsupportedError, match=r"td\.cond"):
        td.gradients(merged * 2, [x])
    (slope,) = td.gradients(td.sin(merged) * merged, [merged])
    got = td.Session(graph).run(slope, {x: 2.0, p: True}).item()
    np.testing.assert_allclose(got, np.cos(4.0) * 4 + np.sin(4.0), rtol=1e-5)


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
    thread.join(30)
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


def test_gradients_pass_through_what_an_earlier_group_computed():
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (None,), name="x")
        v = td.Variable(td.zeros(()), name="v")
        s = x - 1.0
        a = x * 0.5 + td.tanh(s)
        written = v.assign_add(s.sum())
        after = td.py_func(lambda z: z, [written], td.float32, ())  # after a write: runs group by group
        with td.control_dependencies([written]):
            (slope,) = td.gradients((a * a).sum(), [s])
        init = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(init)
    data = np.array([0.5, 1.0, 2.0], dtype=np.float32)
    alone, together = session.run(slope, {x: data}), session.run([slope, after], {x: data})[0]
    np.testing.assert_allclose(alone.numpy(), together.numpy(), rtol=1e-6)
    expected = 2 * (data / 2 + np.tanh(data - 1)) * (1 - np.tanh(data - 1) ** 2)
    np.testing.assert_allclose(alone.numpy(), expected, rtol=1e-5)
