"""What deferred graphs say about sizes that nobody knows yet, and about what is not a feed."""

import threading

import pytest

import tandem as td


def test_unknown_sizes_are_none_in_errors():
    with td.Graph():
        a = td.placeholder(td.float32, (None, None))
        with pytest.raises(td.ShapeError, match=r"x is \(3, None, 3\) and y is \(7,\)"):
            a @ td.ones(3, 3, 3) @ td.ones(7)


def test_len_is_that_of_the_first_axis_where_it_is_known():
    with td.Graph():
        assert len(td.placeholder(td.float32, (4, None))) == 4
        with pytest.raises(td.UnsupportedError, match="axis 0 of 'rows:0' is unknown"):
            len(td.placeholder(td.float32, (None,), name="rows"))
        with pytest.raises(TypeError, match="without axes"):
            len(td.placeholder(td.float32, ()))


def test_feeds_must_be_a_dict():
    with td.Graph():
        x = td.placeholder(td.float32, ())
        with pytest.raises(td.DTypeError, match="feed_dict is a list, not a dict"):
            td.Session().run(x, [1])


def test_names_of_results_that_are_not_there():
    with td.Graph() as graph:
        x = td.placeholder(td.float32, ())
        y = td.session.identity(x, name="y")
        td.group(y, name="nothing")
    session = td.Session(graph)
    with pytest.raises(td.IndexRangeError, match=r"there is no 'y:1': operation 'y' \(identity\) has one result"):
        session.run("y:1", {x: 1})
    with pytest.raises(td.IndexRangeError, match=r"'nothing' .* has no results"):
        session.run(y, {"nothing": 1})
    for name in ("y:x", "y:-1", "y:"):
        with pytest.raises(td.ValueRangeError, match=r"must be the number of a result(.|\n)*write 'y:0'"):
            graph.find(name)
    with pytest.raises(td.DTypeError, match=r"an? int is no name"):
        graph.find(5)


def test_scopes_have_names_or_none():
    with td.Graph(), td.name_scope("a"):
        with td.name_scope(None), td.name_scope("b"):
            assert td.placeholder(td.float32, (), name="x").name == "b/x:0"
        assert td.placeholder(td.float32, (), name="x").name == "a/x:0"
        with pytest.raises(td.DTypeError, match="name is a int"), td.name_scope(5):
            pass


def test_a_session_runs_a_graph():
    with pytest.raises(td.DTypeError, match=r"runs a td\.Graph, and got a int"):
        td.Session(5)


def test_predicates_have_one_element():
    with td.Graph():
        x = td.placeholder(td.float32, (3,))
        for vary in (False, True):
            with pytest.raises(td.ShapeError, match=r"while_loop: the predicate has shape \(3,\)(.|\n)*\.any\(\)"):
                td.while_loop(lambda v: v < 3, lambda v: v + 1, [x], **({"vary": True} if vary else {}))
        with pytest.raises(td.ShapeError, match=r"cond: the predicate has shape \(3,\)"):
            td.cond(x > 0, lambda: x, lambda: -x)


def test_gradients_that_are_given_must_fit_when_they_are():
    with td.Graph():
        x = td.placeholder(td.float32, (None, 3))
        y = td.session.identity(x * 2, name="y")
        for wrong in (td.ones(4), td.ones(2, 2, 3)):
            with pytest.raises(td.ShapeError, match=r"given for 'y:0' is .*, and 'y:0' is \(None, 3\)"):
                td.gradients(y, x, grad_ys=[wrong])
        with pytest.raises(td.DTypeError, match="given for 'y:0' is complex64"):
            td.gradients(y, x, grad_ys=[td.ones(3, dtype=td.complex64)])
        (slope,) = td.gradients(y, x, grad_ys=[td.ones(3)])
        assert td.Session().run(slope, {x: [[1, 2, 3]]}).tolist() == [[2, 2, 2]]


def test_threads_learn_that_their_session_was_closed():
    with td.Graph() as graph:
        v = td.Variable(td.zeros(1000))
        total = (v + 1).sum()
        init = td.global_variables_initializer()
    for _ in range(10):
        session = td.Session(graph)
        session.run(init)
        told = []

        def work(session=session, told=told):
            try:
                while True:
                    session.run(total)
            except td.ValueRangeError as error:
                told.append(str(error))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        session.close()
        for t in threads:
            t.join()
        assert len(told) == 4 and all("the session is closed" in text for text in told)
    with pytest.raises(td.ValueRangeError, match="the session is closed"):
        session.value_of(v)
