"""Nodes of deferred graphs: gradients, scopes, functions of Python."""

import numpy as np
import pytest

import tandem as td
from tests.session.graphs import _started


@pytest.fixture
def graph():
    with td.Graph() as g:
        yield g


def test_gradients_pass_through_what_is_fed(graph, capfd):
    v = td.Variable(td.ones(2))
    h = v * 3
    (slope,) = td.gradients((h * h).sum(), [v])
    e = td.Print(td.exp(v), [v], "not asked for")
    cubes = (e**3).sum()
    (steep,) = td.gradients(cubes, [v])
    (second,) = td.gradients(steep.sum(), [v])
    both = td.gradients(cubes, [e, v])
    session = _started(graph)
    assert session.run(slope, {h: [1, 1]}).tolist() == [6, 6]
    assert [t.tolist() for t in session.run([h, slope], {h: [2, 1]})] == [[2, 1], [12, 6]]
    fed = np.array([1.0, 2.0])
    of_e, of_v = session.run(both, {e: fed})
    np.testing.assert_allclose(of_e.numpy(), 3 * fed**2)
    np.testing.assert_allclose(of_v.numpy(), 3 * fed**2 * np.e, rtol=1e-6)
    expected = 6 * fed * np.e**2 + 3 * fed**2 * np.e
    np.testing.assert_allclose(session.run(second, {e: fed}).numpy(), expected, rtol=1e-6)
    assert capfd.readouterr().err == ""
    with td.control_dependencies([v.assign_add(td.ones(2))]):
        outside = td.py_func(lambda a: a * 2, [slope], td.float32, (2,))
    assert session.run(outside, {h: [1, 1]}).tolist() == [12, 12]


def test_gradients_through_what_is_fed_need_its_shape(graph):
    x = td.placeholder(td.float32, (None,), name="x")
    y = td.tanh(x)
    (slope,) = td.gradients((y * y).sum(), [x])
    with pytest.raises(td.ShapeError, match=r"\(3,\) is fed for what is \(2,\)(.|\n)*in 'tanh' of \(x:0"):
        td.Session(graph).run(slope, {x: [1, 2], y: [1, 2, 3]})


def _in_place(a):
    a += 1
    return a


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (lambda a: a * 1j, td.DTypeError, r"function of 'called' gave complex64 for 'called:0', which is float32"),
        (lambda a: None, td.DTypeError, r"function of 'called' gave None for 'called:0'"),
        (lambda a: "text", td.DTypeError, r"function of 'called' gave 'text' for 'called:0'"),
        (lambda a: np.array([None, 1]), td.DTypeError, r"function of 'called' gave a ndarray.*dtype object"),
        (lambda a: [a, a], td.ValueRangeError, r"function of 'called' gave 2 results"),
        (lambda a: a[:1], td.ShapeError, r"'called:0' is \(2,\) and the function gave \(1,\)"),
    ],
)
def test_what_python_functions_may_not_give(graph, function, error, text):
    x = td.placeholder(td.float32, (2,))
    called = td.py_func(function, [x], td.float32, name="called")
    with pytest.raises(error, match=text) as raised:
        td.Session(graph).run(called, {x: [1, 2]})
    assert "called = td.py_func" in _line(raised.value)


def test_python_functions_do_not_change_what_they_are_given(graph):
    x = td.placeholder(td.float32, (2,))
    called = td.py_func(_in_place, [x], td.float32, name="called")
    copied = td.py_func(lambda a: _in_place(a.copy()), [x], td.float32)
    given = np.ones(2, "f")
    with pytest.raises(ValueError, match="read-only") as raised:
        td.Session(graph).run(called, {x: given})
    assert "'called' (py_func), built at" in raised.value.__notes__[0] and "x.copy()" in raised.value.__notes__[1]
    assert td.Session(graph).run(copied, {x: given}).tolist() == [2, 2] and given.tolist() == [1, 1]


def _line(error):
    with open(error.source.file) as f:
        return f.readlines()[error.source.line - 1]


def test_errors_when_building_name_op_and_line(graph):
    x = td.placeholder(td.float32, (2, 3))
    with pytest.raises(td.ShapeError, match="matmul") as error:
        td.matmul(x, x)
    assert "td.matmul(x, x)" in _line(error.value)


def test_gradients(graph):
    x = td.placeholder(td.float32, (3,))
    unrelated = td.placeholder(td.float32, (3,))
    y = td.tanh(x) * 2
    (first, none) = td.gradients(y, [x, unrelated])
    (second,) = td.gradients(first, x)
    (weighted,) = td.gradients(y, x, grad_ys=[np.array([1, 0, 2], "f")])
    assert none is None
    a = np.array([0.1, -0.5, 2], "f")
    t = np.tanh(a)
    got = td.Session(graph).run([first, second, weighted], {x: a})
    np.testing.assert_allclose(got[0].numpy(), 2 * (1 - t**2), rtol=1e-5)
    np.testing.assert_allclose(got[1].numpy(), -4 * t * (1 - t**2), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got[2].numpy(), 2 * (1 - t**2) * [1, 0, 2], rtol=1e-5)


def test_gradients_around_a_python_function(graph):
    x = td.placeholder(td.float32, (2,))
    scale = td.py_func(lambda a: a.sum(), [x * 1], td.float32, shape=())
    dropped = td.dropout(x, 0.5)
    y = (dropped * dropped * scale).sum()
    (g,) = td.gradients(y, x)
    value, g, d = td.Session(graph).run([y, g, dropped], {x: [1, 3]})
    d = d.numpy()
    assert value.item() == pytest.approx(4 * (d**2).sum())
    np.testing.assert_allclose(
        g.numpy(), 2 * d * 4 * np.where(d != 0, 2, 0)
    )  # same mask on both sides of the Python function


def test_print_goes_to_standard_error(graph, capfd):
    x = td.placeholder(td.float32, (2,))
    y = td.Print(x, [x * 2, x.sum()], "values: ") * 3
    (g,) = td.gradients(y, x)
    session = td.Session(graph)
    assert session.run(y, {x: [1, 2]}).tolist() == [3, 6]
    assert capfd.readouterr().err == "values: [2 4][3]\n"
    assert session.run(g, {x: [1, 2]}).tolist() == [3, 3]
    session.run(x + 1, {x: [1, 2]})
    assert "values" not in capfd.readouterr().err.replace("values: [2 4][3]\n", "")


def test_names_scopes_devices(graph):
    with td.name_scope("layer"):
        a = td.placeholder(td.float32, (), name="x")
        b = td.placeholder(td.float32, (), name="x")
    assert (a.name, b.name) == ("layer/x:0", "layer/x_1:0")
    with td.device("/cpu:0"):
        c = a + b
    assert c.node.device == "cpu"
    with pytest.raises(td.DeviceError), td.device("/gpu:7"):
        pass


def test_operators_outside_the_context_find_the_graph():
    with td.Graph() as g:
        x = td.placeholder(td.float32, (None, 2))
    y = td.relu(x[:, 0] - 1) + x.mean(1)
    y = 2 * y - td.concat([y, y])[: x.shape[0]]
    assert y.graph is g
    assert td.Session(g).run(y, {x: [[1, 3], [5, 5]]}).tolist() == [2, 9]
    assert td.ones(2).tolist() == [1, 1]  # eager code is not touched


def test_initial_values_may_depend_on_other_variables(graph):
    v = td.Variable(td.rand(2))
    w = td.Variable(v * 2)
    a, b = _started(graph).run([v, w])
    np.testing.assert_allclose(b.numpy(), 2 * a.numpy())


def test_gradients_stop_at_detach(graph):
    x = td.placeholder(td.float32, ())
    (g,) = td.gradients(x.detach() * x + (x * 2).detach(), x)
    assert td.gradients(x.detach(), x) == [None]
    assert td.Session(graph).run(g, {x: 3.0}).item() == 3
