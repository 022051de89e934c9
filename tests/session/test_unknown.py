"""Sizes that are known when a graph runs."""

import numpy as np
import pytest

import tandem as td


@pytest.fixture
def graph():
    with td.Graph() as g:
        yield g


def test_unknown_sizes_fit_until_they_do_not(graph):
    x = td.placeholder(td.float32, (None,), name="x")
    y = td.placeholder(td.float32, (None,), name="y")
    z = x + y
    three = x + np.ones(3, "f")
    session = td.Session(graph)
    assert session.run(z, {x: [1, 2], y: [3]}).tolist() == [4, 5]  # sizes of 1 broadcast, as in eager code
    assert session.run(three, {x: [1]}).tolist() == [2, 2, 2]
    with pytest.raises(td.ShapeError, match=r"add_?\d*.*\n?.*x:0") as error:
        session.run(z, {x: [1, 2], y: [1, 2, 3]})
    assert "test_unknown.py" in str(error.value) and "z = x + y" in _line(error.value)
    reshaped = x.reshape(-1, 4)
    assert session.run(reshaped, {x: np.arange(8)}).shape == (2, 4)


def _line(error):
    with open(error.source.file) as f:
        return f.readlines()[error.source.line - 1]


def test_sizes_are_those_of_the_run(graph):
    x, y = td.placeholder(td.float32, (None,)), td.placeholder(td.float32, (None,))
    z = x + y
    rows = td.zeros(z.shape[0], 2)
    session = td.Session(graph)
    assert session.run(rows, {x: [1], y: [1, 2, 3]}).shape == (3, 2)
    assert session.run(rows, {x: [1, 2], y: [1]}).shape == (2, 2)
    with pytest.raises(td.UnsupportedError, match="axis 0 of 'placeholder:0' is unknown"):
        int(x.shape[0])
    y = x[: x.shape[0] // 2]
    assert session.run(y, {x: [1, 2, 3, 4, 5]}).tolist() == [1, 2]
    z = x * 2 if x.shape[0] == 3 else x * 3
    assert session.run(z, {x: [1, 2, 3]}).tolist() == [2, 4, 6]
    with pytest.raises(td.ShapeError, match="the program that built the graph"):
        session.run(z, {x: [1, 2]})
