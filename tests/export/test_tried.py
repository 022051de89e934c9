import numpy as np
import pytest

import tandem as td
from tandem.export.sizes import Group
from tandem.export.trace import trace
from tandem.export.tried import gives_the_same, with_sizes


def test_graphs_that_give_the_same():
    x = td.randn(4, 3)
    plain, other, shorter = (trace(f, (x,)).graph for f in (lambda x: x * 2, lambda x: x + x, lambda x: x[1:] * 2))
    assert gives_the_same(plain, other, [x])
    assert not gives_the_same(plain, shorter, [x])
    assert not gives_the_same(trace(lambda x: x * 3, (x,)).graph, plain, [x])


def test_examples_of_other_sizes_repeat_their_rows():
    a, b = td.arange(3), td.ones(2, 3)
    made = with_sizes([a, b], {Group(0, 3, "a", ((0, 0), (1, 1))): 5})
    np.testing.assert_array_equal([0, 1, 2, 0, 1], made[0].numpy())
    assert (2, 5) == made[1].shape


def test_slices_of_less_than_nothing_are_refused_at_run(tmp_path):
    def tail(x):
        return td.tensor_split(x, [x.shape[0] // 2, (x.shape[0] + 1) // 2], -1)[-1]

    td.export.save(tail, (td.randn(4, 6),), tmp_path / "m", dynamic={"x": (1,)})
    model = td.export.load(tmp_path / "m")
    for n in (2, 3, 9):
        x = td.randn(4, n)
        assert model(x).tolist() == tail(x).tolist()
    with pytest.raises(td.ShapeError, match="axis 1 of 'x' must have 2 elements or more"):
        model(td.randn(4, 1))
