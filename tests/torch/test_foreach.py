"""Functions of lists of tensors."""

import pytest

import tandem as td
import tandem.torch as torch


@pytest.mark.oracle
def test_lists_of_tensors():
    there = pytest.importorskip("torch")

    x = [[1.0, -2.0], [3.0]]
    for name, args in (
        ("abs", ()), ("add", (2.0,)), ("mul", ([2.0, 3.0],)), ("sub", ([[1.0, 1.0], [2.0]],)),
        ("maximum", (0.0,)), ("clamp_max", (0.5,)),
        ("lerp", ([[0.0, 0.0], [1.0]], 0.25)), ("addcmul", ([[1.0, 2.0], [3.0]], [[1.0, 1.0], [2.0]], 0.5)),
        ("norm", ()), ("max", ()),
        ("addcdiv", ([[1.0, 2.0], [3.0]], [[1.0, 1.0], [2.0]], [0.5, 2.0])), ("pow", (2,)), ("clone", ()),
    ):  # fmt: skip

        def made(torch, name=name, args=args):
            tensors = lambda v: [torch.tensor(t) for t in v] if isinstance(v, list) and isinstance(v[0], list) else v
            return [t.tolist() for t in getattr(torch, f"_foreach_{name}")(tensors(x), *map(tensors, args))]

        assert made(torch) == made(there), name
    ours = [td.tensor(v) for v in x]
    torch._foreach_mul_(ours, 2.0)
    torch._foreach_copy_(ours[:1], [td.zeros(2)])
    assert [t.tolist() for t in ours] == [[0.0, 0.0], [6.0]]
