import numpy as np

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
