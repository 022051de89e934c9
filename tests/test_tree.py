"""td.tree: functions over nested containers."""

from typing import NamedTuple

import pytest

import tandem as td


class Pair(NamedTuple):
    a: object
    b: object


TREE = {"w": [1, (2, None)], "p": Pair(3, {})}


def test_taken_apart_and_put_together():
    values, structure = td.tree.flatten(TREE)
    assert values == td.tree.leaves(TREE) == [1, 2, 3]
    assert structure == td.tree.structure(TREE)
    assert td.tree.unflatten(structure, values) == TREE
    assert td.tree.paths(TREE) == ["['w'][0]", "['w'][1][0]", "['p'].a"]
    assert td.tree.reduce(lambda a, b: a * 10 + b, TREE) == 123


def test_map():
    assert td.tree.map(lambda x: -x, TREE) == {"w": [-1, (-2, None)], "p": Pair(-3, {})}
    assert td.tree.map(lambda x, y: x + y, (1, 2), (10, 20)) == (11, 22)
    with pytest.raises(td.ValueRangeError, match=r"container 2 is \(\*,\), but the first is \(\*, \*\)"):
        td.tree.map(lambda x, y: x, (1, 2), (1,))


def test_checkpoint_as_a_decorator():
    @td.remat
    def wave(x, *, factor=1.0):
        return td.sin(td.exp(x) * factor)

    x = td.tensor([0.3, 0.7], requires_grad=True)
    (got,) = td.autograd.grad(wave(x, factor=2.0).sum(), x)
    (expected,) = td.autograd.grad(td.sin(td.exp(x) * 2.0).sum(), x)
    td.testing.assert_close(got, expected)
    assert wave.__name__ == "wave"
