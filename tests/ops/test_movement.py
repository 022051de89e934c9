import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tandem as td
import tandem.ops as F
from tests.check import check_op
from tests.ops.operands import numpy_pad

SHAPES = [(3, 4), (0, 3), (2, 3, 4)]


# -- one axis order, one shape


def test_reshape():
    check_op(td.reshape, lambda x: x.reshape(-1, 2), shapes=[(3, 4), (2, 3, 4), (0, 2)], args=((-1, 2),))
    check_op(td.reshape, lambda x: x.reshape(()), shapes=[(1, 1)], args=((),))
    assert td.arange(6).reshape(2, 3).shape == (2, 3)
    assert td.zeros((3, 1, 5)).reshape([5, 3]).shape == (5, 3)
    with pytest.raises(td.ShapeError, match="6 elements do not fit shape \\(4, 2\\)"):
        td.arange(6).reshape(4, 2)
    with pytest.raises(td.ShapeError, match="more than one -1"):
        td.arange(6).reshape(-1, -1)


def test_permute():
    check_op(td.permute, lambda x: x.transpose(2, 0, 1), shapes=[(2, 3, 4)], args=((2, 0, 1),))
    assert (
        td.zeros((2, 3, 4)).permute(2, 0, 1).shape == td.permute_dims(td.zeros((2, 3, 4)), (2, 0, 1)).shape == (4, 2, 3)
    )
    with pytest.raises(td.ValueRangeError):
        td.zeros((2, 3)).permute(0, 0)


def test_transpose():
    check_op(td.transpose, lambda x: x.swapaxes(0, -1), shapes=[(3, 4), (2, 3, 4)], args=(0, -1))
    assert td.swapaxes(td.zeros((2, 3)), 0, 1).shape == td.swapdims(td.zeros((2, 3)), 0, 1).shape == (3, 2)


def test_matrix_transpose():
    check_op(td.matrix_transpose, lambda x: x.swapaxes(-1, -2), shapes=SHAPES)
    x = td.zeros((2, 3, 4))
    assert (
        x.mT.shape == (2, 4, 3)
        and td.zeros((2, 3)).T.shape == (3, 2)
        and x.mH.shape == (2, 4, 3)
        and td.zeros((2, 3)).H.shape == (3, 2)
    )


def test_squeeze():
    check_op(td.squeeze, np.squeeze, shapes=[(3, 1, 2, 1), (1, 1), (2,), (1, 0)])
    check_op(td.squeeze, lambda x: x.squeeze(1), shapes=[(3, 1, 2, 1)], kwargs={"axis": 1})
    assert td.zeros((3, 1)).squeeze(0).shape == (3, 1)
    assert td.zeros((1, 3, 1)).squeeze((0, 2)).shape == (3,)


def test_unsqueeze():
    check_op(td.unsqueeze, lambda x: np.expand_dims(x, -1), shapes=[(3, 4), (), (0,)], args=(-1,))
    assert td.expand_dims(td.zeros((2, 3)), axis=(0, 2)).shape == (1, 2, 1, 3)
    assert td.zeros(3).unsqueeze(dim=1).shape == (3, 1)


def test_expand():
    check_op(
        td.expand, lambda x: np.broadcast_to(x, (2, 3, 4)), shapes=[(3, 4), (1, 4), (3, 1), (4,), ()], args=((2, 3, 4),)
    )
    assert td.zeros((3, 1)).expand(-1, 4).shape == (3, 4)
    assert td.broadcast_to(td.zeros(3), (2, 3)).shape == (2, 3)
    assert td.tensor([1.0, 2.0]).expand_as(td.zeros((3, 2))).tolist() == [[1, 2]] * 3
    with pytest.raises(td.ShapeError, match="cannot become"):
        td.zeros(3).expand(2, 4)


def test_broadcast_tensors():
    check_op(td.broadcast_tensors, lambda x, y: np.broadcast_arrays(x, y), shapes=[((3, 1), (4,)), ((), (2,))])


# -- rearranging


def test_flip():
    check_op(td.flip, np.flip, shapes=[(3, 4), (), (0, 2), (5,)])
    check_op(td.flip, lambda x: np.flip(x, 1), shapes=[(3, 4)], kwargs={"axis": 1})
    x = td.arange(3)
    assert td.flip(x)[0] == 2
    td.flip(x).add_(1)
    assert x.tolist() == [0, 1, 2]


def test_slice_axis():
    check_op(F.slice_axis, lambda x: x[1:6:2], shapes=[(7, 2)], args=(0, 1, 3, 2))


# -- random programs of movements against NumPy


@st.composite
def arrays(draw, max_ndim=4):
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=0, max_size=max_ndim)))
    base = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    kind = draw(st.sampled_from(["plain", "transposed", "strided", "backwards"]))
    if kind == "transposed":
        base = np.ascontiguousarray(base.T).T
    elif kind == "strided" and shape:
        base = np.repeat(base, 2, axis=-1)[..., ::2]
    elif kind == "backwards" and shape:
        base = np.ascontiguousarray(base[::-1])[::-1]
    return base


STEPS = ["permute", "reshape", "slice", "flip", "concat", "roll", "unsqueeze", "expand", "pad", "tile"]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_movements(data):
    """A chain of movements gives what NumPy gives, elements and shape, whatever the layout it starts from."""
    x = data.draw(arrays())
    t = td.from_numpy(x)
    for _ in range(data.draw(st.integers(1, 4))):
        step = data.draw(st.sampled_from(STEPS))
        x, t = apply_step(data, step, x, t)
        assert t.shape == x.shape, step
        np.testing.assert_array_equal(t.numpy(), x, err_msg=step)
        if x.size > 2000 or x.ndim > 5:
            break


def apply_step(data, step, x, t):
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1)) if x.ndim else None
    if step == "permute":
        order = tuple(data.draw(st.permutations(range(x.ndim))))
        return x.transpose(order), t.permute(order)
    if step == "reshape":
        factors = [d for d in x.shape if d != 1] or [1]
        shape = tuple(data.draw(st.permutations(factors))) + (1,) * data.draw(st.integers(0, 1))
        if 0 not in shape and data.draw(st.booleans()):
            shape = (-1, *shape[1:])
        return x.reshape(shape), t.reshape(shape)
    if step == "unsqueeze":
        at = data.draw(st.integers(-x.ndim - 1, x.ndim))
        return np.expand_dims(x, at), t.unsqueeze(at)
    if step == "expand":
        return np.broadcast_to(x, (2, *x.shape)), t.expand((2, *x.shape))
    if axis is None:
        return x, t
    if step == "slice":
        key = data.draw(
            st.builds(slice, *[st.none() | st.integers(-6, 6)] * 2, st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3]))
        )
        index = (slice(None),) * (axis % x.ndim) + (key,)
        return x[index], t[index]
    if step == "flip":
        return np.flip(x, axis), t.flip(axis)
    if step == "roll":
        by = data.draw(st.integers(-5, 5))
        return np.roll(x, by, axis), t.roll(by, axis)
    if step == "concat":
        return np.concatenate([x, x], axis), td.concat([t, t], axis)
    if step == "tile":
        times = (data.draw(st.integers(0, 2)), 2)
        return np.tile(x, times), t.tile(times)
    widths = tuple(data.draw(st.integers(0, 2)) for _ in range(2))
    return numpy_pad(x, widths, value=7), td.pad(t, widths, value=7)


def test_reshapes_of_permuted_memory_follow_their_own_groups():
    """A copy learns which axes belong together from its first call; others of the same signature may group differently."""
    rng = np.random.default_rng(3)
    for sizes, shape in [
        ((3, 4, 6, 5, 7), (4, 5, 126)), ((2, 3, 5, 4, 6), (3, 4, 60)), ((3, 4, 6, 5, 7), (20, 3, 42)),
        ((2, 3, 5, 4, 6), (6, 12, 10)),
        ((2, 3, 4, 5, 0), (3, 5, 0)), ((4, 4, 4, 4, 4), (16, 4, 16)), ((4, 4, 4, 4, 4), (2, 4, 128)),
    ]:  # fmt: skip
        x = rng.standard_normal(sizes).astype(np.float32)
        permuted = td.tensor(x).permute(1, 3, 0, 2, 4)
        np.testing.assert_array_equal(x.transpose(1, 3, 0, 2, 4).reshape(shape), permuted.reshape(shape).numpy())


def test_expanding_to_its_own_shape_is_a_view():
    x = td.ones(2, 3, requires_grad=True)
    for y in (x.expand(2, 3), x.expand_as(x), x.expand(-1, -1), td.broadcast_to(x, (2, 3))):
        assert y is not x and not y.is_leaf and y.grad_fn.next_functions[0][0].variable is x
        assert y.data_ptr() == x.data_ptr()
