"""Axes moved, elements repeated, rolled and padded."""

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tests.check import assert_close, check_op
from tests.ops.operands import numpy_pad

SHAPES = [(3, 4), (0, 3), (2, 3, 4)]


def test_moveaxis():
    check_op(td.moveaxis, lambda x: np.moveaxis(x, 0, -1), shapes=SHAPES, args=(0, -1))
    check_op(td.moveaxis, lambda x: np.moveaxis(x, (0, 1), (2, 0)), shapes=[(2, 3, 4)], args=((0, 1), (2, 0)))
    assert td.movedim(td.zeros((2, 3)), 0, 1).shape == (3, 2)
    with pytest.raises(td.ValueRangeError):
        td.moveaxis(td.zeros((2, 3)), (0, 0), (0, 1))


def test_flatten():
    check_op(td.flatten, np.ravel, shapes=[(3, 4), (), (0, 2), (2, 3, 4)])
    check_op(td.flatten, lambda x: x.reshape(x.shape[0], -1), shapes=[(3, 4), (2, 3, 4)], args=(1,))
    with pytest.raises(td.ValueRangeError):
        td.flatten(td.zeros((2, 3)), 1, 0)


def test_ravel():
    check_op(td.ravel, np.ravel, shapes=[(3, 4), (), (2, 3, 4)])


def test_unflatten():
    check_op(td.unflatten, lambda x: x.reshape(x.shape[0], 2, -1), shapes=[(3, 4), (2, 6)], args=(1, (2, -1)))
    with pytest.raises(td.ShapeError):
        td.unflatten(td.zeros(5), 0, (2, 2))


def test_roll():
    check_op(td.roll, lambda x: np.roll(x, 2), shapes=[(3, 4), (5,), (), (0,)], args=(2,))
    check_op(td.roll, lambda x: np.roll(x, (-1, 3), (0, 1)), shapes=[(3, 4), (2, 5)], args=((-1, 3), (0, 1)))
    check_op(td.roll, lambda x: np.roll(x, 7, 1), shapes=[(3, 4), (3, 0)], args=(7, 1))
    with pytest.raises(td.ValueRangeError):
        td.roll(td.zeros((2, 2)), (1, 2), 0)


def test_tile():
    check_op(td.tile, lambda x: np.tile(x, (2, 3)), shapes=[(2, 3), (2,), (), (2, 2, 2)], args=((2, 3),))
    assert td.tile(td.zeros((2, 2)), (0, 1)).shape == (0, 2)
    assert td.zeros(3).tile(2).shape == (6,)


def test_repeat():
    check_op(td.Tensor.repeat, lambda x: np.tile(x, (2, 1, 3)), shapes=[(2, 3), (2,)], args=((2, 1, 3),))
    assert td.zeros(3).repeat(2, 2).shape == (2, 6)
    with pytest.raises(td.ShapeError, match="use tile"):
        td.zeros((2, 3)).repeat(2)


def test_repeat_interleave():
    check_op(td.repeat_interleave, lambda x: np.repeat(x, 2), shapes=[(2, 3), (), (0,)], args=(2,))
    check_op(F.repeat_each, lambda x: np.repeat(x, 3, 1), shapes=[(2, 3, 2)], args=(3, 1))
    check_op(td.repeat_interleave, lambda x: np.repeat(x, [1, 0, 2], 1), shapes=[(2, 3)], args=([1, 0, 2], 1))
    assert td.repeat_interleave(td.arange(2), td.tensor([2, 1]), dim=0).tolist() == [0, 0, 1]
    with pytest.raises(td.ShapeError):
        td.repeat_interleave(td.arange(3), td.tensor([2, 1]))


def test_rot90():
    for k in range(-1, 4):
        check_op(td.rot90, lambda x, k=k: np.rot90(x, k), shapes=[(2, 3)], args=(k,), second=False)
    check_op(td.rot90, lambda x: np.rot90(x, 1, (2, 0)), shapes=[(2, 3, 4)], args=(1, (2, 0)))


def test_atleast():
    for name in ("atleast_1d", "atleast_2d", "atleast_3d"):
        check_op(
            getattr(td, name), getattr(np, name), shapes=[(), (2,), (2, 3), (2, 3, 4)], test_layouts=False, second=False
        )
    assert [t.shape for t in td.atleast_2d(td.tensor(1.0), td.zeros(3))] == [(1, 1), (1, 3)]


def test_narrow():
    check_op(td.narrow, lambda x: x[:, 1:3], shapes=[(3, 4)], args=(1, 1, 2))
    assert td.arange(5).narrow(0, -2, 2).tolist() == [3, 4]
    with pytest.raises(td.IndexRangeError):
        td.arange(5).narrow(0, 3, 3)


def test_select():
    check_op(td.select, lambda x: x[:, -2], shapes=[(3, 4)], args=(1, -2))
    with pytest.raises(td.IndexRangeError, match="index 4 is out of range for axis 1 with size 4"):
        td.zeros((3, 4)).select(1, 4)


# -- padding


def test_pad_constant():
    check_op(
        td.pad,
        lambda x: numpy_pad(x, (1, 2)),
        shapes=[(3, 4), (5,), (0,), (2, 3, 4)],
        args=((1, 2),),
        dtypes=("float32", "int64"),
    )
    check_op(
        td.pad, lambda x: numpy_pad(x, (1, 0, 2, 1), value=1.5), shapes=[(3, 4)], args=((1, 0, 2, 1), "constant", 1.5)
    )
    check_op(td.pad, lambda x: numpy_pad(x, (-1, 2, 1, -2)), shapes=[(3, 4)], args=((-1, 2, 1, -2),))
    x = td.tensor([np.nan, -0.0])
    padded = td.pad(x, (1, 1), value=float("-inf")).numpy()
    assert np.isneginf(padded[[0, 3]]).all() and np.isnan(padded[1]) and np.signbit(padded[2])
    assert td.pad(td.arange(3), (0, 0)).tolist() == [0, 1, 2]
    assert td.pad(td.arange(3), (-5, 3)).tolist() == [0]


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_pad_modes(mode):
    check_op(td.pad, lambda x: numpy_pad(x, (2, 1), mode), shapes=[(3, 4), (3,)], args=((2, 1), mode))
    check_op(
        td.pad, lambda x: numpy_pad(x, (0, 2, 1, -1), mode), shapes=[(3, 4), (2, 3, 3)], args=((0, 2, 1, -1), mode)
    )


def test_pad_errors():
    with pytest.raises(td.ShapeError, match="reflect padding by 3"):
        td.pad(td.zeros(3), (3, 0), "reflect")
    with pytest.raises(td.ShapeError, match="cannot lose"):
        td.pad(td.zeros(3), (-2, -2))
    with pytest.raises(td.ShapeError, match="3 numbers"):
        td.pad(td.zeros((3, 3)), (1, 2, 3))
    with pytest.raises(td.ValueRangeError, match="mode is 'mirror'"):
        td.pad(td.zeros(3), (1, 1), "mirror")


@pytest.mark.parametrize("mode", ["constant", "edge", "wrap", "reflect", "symmetric"])
def test_pad_in_numpys_manner(mode):
    x = np.arange(12.0).reshape(3, 4)
    widths = ((1, 2), (2, 1))
    check_op(td.pad, lambda a: np.pad(a, widths, mode), inputs=[(x,)], args=(widths, mode))
    assert_close(td.pad(td.tensor(x), pad_width=1, mode=mode), np.pad(x, 1, mode))
    assert_close(td.pad(td.tensor(x), pad_width=(1, 0), mode=mode), np.pad(x, (1, 0), mode))
    if mode == "constant":
        assert_close(
            td.pad(td.tensor(x), ((1, 1), (0, 0)), constant_values=5.0),
            np.pad(x, ((1, 1), (0, 0)), constant_values=5.0),
        )
    with pytest.raises(td.errors.ShapeError, match="pairs"):
        td.pad(td.tensor(x), ((1, 1), (1, 1), (1, 1)))
    with pytest.raises(td.errors.ValueRangeError, match="either pad or pad_width"):
        td.pad(td.tensor(x))


def test_padding_replicates_what_the_other_end_takes_away():
    x = td.tensor([[1.0, 2.0, 3.0]])
    pad = td.nn.functional.pad
    assert pad(x, (-3, 4), mode="replicate").tolist() == [[3.0] * 4]
    assert pad(x, (2, -4), mode="replicate").tolist() == [[1.0]]
    assert pad(x, (-2, 2), mode="reflect").tolist() == [[3.0, 2.0, 1.0]]
