"""Operators that are views are views of every layout: what is written through them arrives, eagerly and in compiled functions."""

import numpy as np
import pytest

import tandem as td

LAYOUTS = {
    "rows": lambda x: x,
    "reversed axes": lambda x: x.permute(2, 1, 0),
    "swapped": lambda x: x.transpose(0, 1),
    "columns": lambda x: x.transpose(1, 2),
    "steps": lambda x: x[:, ::2, 1::3],
    "backwards": lambda x: x[:, ::-1].permute(1, 2, 0),
    "part": lambda x: x[:, 1:4, 2:6],
    "single": lambda x: x[:, 2:3].transpose(0, 2),
}

VIEWS = {
    "squeeze": lambda v: v[:, :1].squeeze(1),
    "squeeze all": lambda v: v.squeeze(),
    "unsqueeze": lambda v: td.unsqueeze(v, (0, 2)),
    "expand": lambda v: v.expand(1, *v.shape),
    "transpose": lambda v: v.transpose(0, 2),
    "movedim": lambda v: td.movedim(v, 0, 2),
    "swapaxes": lambda v: td.swapaxes(v, 1, 2),
    "mT": lambda v: v.mT,
    "T": lambda v: v[0].T,
    "mH": lambda v: v.mH,
    "select": lambda v: td.select(v, 2, -1),
    "narrow": lambda v: v.narrow(1, 0, 1),
    "unfold": lambda v: v.unfold(2, 1, 2),
    "chunk": lambda v: v.chunk(2, 2)[-1],
    "split": lambda v: v.split(1, 0)[-1],
    "tensor_split": lambda v: td.tensor_split(v, 2, 1)[0],
    "unbind": lambda v: v.unbind(1)[0],
    "diagonal": lambda v: v.diagonal(),
    "diagonal above": lambda v: v.diagonal(1, 1, 2),
    "diagonal below": lambda v: td.diagonal(v, -1, 2, 0),
    "linalg.diagonal": lambda v: td.linalg.diagonal(v),
    "unflatten": lambda v: v.unflatten(0, (1, -1)),
    "unflatten last": lambda v: v.unflatten(2, (-1, 1)),
    "view": lambda v: v.view(v.shape),
    "reshape": lambda v: v.reshape(v.shape[0], 1, *v.shape[1:]),
    "backwards": lambda v: v[::-1],
    "index": lambda v: v[0, None, :, None],
}


@pytest.mark.parametrize("name", VIEWS)
def test_writes_arrive(name):
    for layout, look in LAYOUTS.items():
        x = td.zeros((4, 6, 8))
        seen = VIEWS[name](look(x))
        seen.fill_(1)
        assert x.sum().item() == seen.size, layout
        assert (seen == 1).all().item(), layout


@pytest.mark.parametrize("name", ["diagonal", "diagonal below", "unflatten", "view", "squeeze"])
def test_writes_arrive_in_compiled_functions(name):
    @td.compile
    def fill(x):
        VIEWS[name](look(x)).fill_(1)

    for layout in ("reversed axes", "steps", "part"):
        look = LAYOUTS[layout]
        for columns in (8, 9):
            x = td.zeros((4, 6, columns))
            fill(x)
            assert x.sum().item() == VIEWS[name](look(x)).size, (layout, columns)


def test_parts_of_complex_numbers():
    for look in LAYOUTS.values():
        x = td.zeros((4, 6, 8), dtype=td.complex64)
        v = look(x)
        v.real.fill_(1)
        td.view_as_real(v)[..., 1].fill_(2)
        np.testing.assert_array_equal(v.numpy(), np.full(v.shape, 1 + 2j, "complex64"))
        td.view_as_complex(td.view_as_real(v)).fill_(0)
        assert not x.numpy().any()


def test_the_same_layout_class_may_allow_a_view_or_not():
    for look, is_view in ((lambda x: x.T[::2], False), (lambda x: x[:, ::2], True)) * 2:
        x = td.zeros((4, 6))
        v = look(x)
        td.reshape(v, (-1,)).fill_(1)
        assert (x.sum().item() == v.size) == is_view


@pytest.mark.parametrize("offset", [0, 1, -2, 5, 9, -9])
def test_diagonals(offset):
    base = np.arange(48.0).reshape(6, 8)
    for look in (lambda x: x, lambda x: x.T, lambda x: x[::2, 1::3], lambda x: x[:, 2:5], lambda x: x[1:]):
        x = td.tensor(base)
        v, expected = look(x), np.diagonal(look(base), offset)
        np.testing.assert_array_equal(td.diagonal(v, offset).numpy(), expected)
        v.diagonal(offset).fill_(-1)
        assert (x == -1).sum().item() == expected.size
        np.testing.assert_array_equal(np.diagonal(look(x.numpy()), offset), np.full(expected.shape, -1.0))


def test_fill_diagonal_of_a_transposed_matrix():
    x = td.ones((3, 4))
    x.T.fill_diagonal_(0)
    np.testing.assert_array_equal(x.numpy(), np.where(np.eye(3, 4, dtype=bool), 0, 1))


def test_gradients_of_writes_through_diagonals():
    w = td.tensor(np.arange(12.0).reshape(3, 4), requires_grad=True)
    x = w * 2
    x.T.diagonal().mul_(td.tensor([1.0, 10.0, 100.0]))
    x.sum().backward()
    expected = np.full((3, 4), 2.0)
    np.fill_diagonal(expected, [2.0, 20.0, 200.0])
    np.testing.assert_array_equal(w.grad.numpy(), expected)
    batched = td.vmap(lambda m: td.diagonal(m.T, 1).sum())(td.tensor(np.arange(24.0).reshape(2, 3, 4)))
    np.testing.assert_array_equal(
        batched.numpy(), [np.diagonal(m.T, 1).sum() for m in np.arange(24.0).reshape(2, 3, 4)]
    )
