import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tandem as td
import tandem.ops as F
from tests.check import assert_close, check_op

SHAPES = [(3, 4), (0, 3), (2, 3, 4)]


def numpy_pad(x, pad, mode="constant", value=0):
    """F.pad's order of widths in np.pad's words; negative widths crop first."""
    widths = [(0, 0)] * x.ndim
    for i in range(len(pad) // 2):
        widths[-1 - i] = (pad[2 * i], pad[2 * i + 1])
    x = x[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, widths, strict=True))]
    widths = [(max(a, 0), max(b, 0)) for a, b in widths]
    if mode == "constant":
        return np.pad(x, widths, constant_values=value)
    return np.pad(x, widths, mode={"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode])


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


def test_moveaxis():
    check_op(td.moveaxis, lambda x: np.moveaxis(x, 0, -1), shapes=SHAPES, args=(0, -1))
    check_op(td.moveaxis, lambda x: np.moveaxis(x, (0, 1), (2, 0)), shapes=[(2, 3, 4)], args=((0, 1), (2, 0)))
    assert td.movedim(td.zeros((2, 3)), 0, 1).shape == (3, 2)
    with pytest.raises(td.ValueRangeError):
        td.moveaxis(td.zeros((2, 3)), (0, 0), (0, 1))


def test_squeeze():
    check_op(td.squeeze, np.squeeze, shapes=[(3, 1, 2, 1), (1, 1), (2,), (1, 0)])
    check_op(td.squeeze, lambda x: x.squeeze(1), shapes=[(3, 1, 2, 1)], kwargs={"axis": 1})
    assert td.zeros((3, 1)).squeeze(0).shape == (3, 1)
    assert td.zeros((1, 3, 1)).squeeze((0, 2)).shape == (3,)


def test_unsqueeze():
    check_op(td.unsqueeze, lambda x: np.expand_dims(x, -1), shapes=[(3, 4), (), (0,)], args=(-1,))
    assert td.expand_dims(td.zeros((2, 3)), axis=(0, 2)).shape == (1, 2, 1, 3)
    assert td.zeros(3).unsqueeze(dim=1).shape == (3, 1)


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


# -- joining and cutting


def test_concat():
    check_op(lambda *x: td.concat(list(x), 0), lambda *x: np.concatenate(x, 0), names=["concat"],
             shapes=[((2, 3), (1, 3), (4, 3)), ((3,), (0,)), ((2, 3, 2), (2, 3, 2))])  # fmt: skip
    check_op(
        lambda *x: td.concat(list(x), axis=-1),
        lambda *x: np.concatenate(x, -1),
        shapes=[((2, 3), (2, 1)), ((2, 2, 3), (2, 2, 0))],
    )
    assert td.cat([td.zeros(2), td.zeros(3)], dim=0).shape == (5,)
    assert td.concat([td.zeros((2, 2)), td.zeros(3)], axis=None).shape == (7,)
    assert td.concat([td.tensor([1]), td.tensor([0.5])]).dtype is td.float32
    assert td.concatenate([td.zeros(2)]).shape == (2,)
    with pytest.raises(td.ShapeError, match="tensor 0 is \\(2, 3\\) and tensor 1 is \\(2, 4\\)"):
        td.concat([td.zeros((2, 3)), td.zeros((2, 4))])
    with pytest.raises(td.ShapeError, match="no tensors"):
        td.concat([])


def test_stack():
    check_op(
        lambda *x: td.stack(list(x), 1),
        lambda *x: np.stack(x, 1),
        names=["stack"],
        shapes=[((2, 3), (2, 3)), ((3,), (3,), (3,))],
    )
    check_op(lambda *x: td.stack(list(x)), lambda *x: np.stack(x), shapes=[((), ()), ((0,), (0,))])
    with pytest.raises(td.ShapeError, match="all need one shape"):
        td.stack([td.zeros(2), td.zeros(3)])


@pytest.mark.parametrize("name", ["hstack", "vstack", "dstack", "column_stack"])
def test_stacks(name):
    shapes = [((2, 3), (2, 3)), ((3,), (3,))] + ([((), ())] if name != "column_stack" else [])
    check_op(
        lambda *x: getattr(td, name)(list(x)),
        lambda *x: getattr(np, name)(x),
        names=[name],
        shapes=shapes,
        test_layouts=False,
    )
    assert td.row_stack([td.zeros(2), td.ones(2)]).shape == (2, 2)


def test_split():
    pairs = lambda x: tuple(x[i : i + 2] for i in range(0, len(x), 2))
    check_op(td.split, pairs, shapes=[(5, 3), (4,)], args=(2,), deferred="sizes")
    check_op(F.split_sizes, lambda x: np.split(x, (1, 1), 1), shapes=[(3, 4)], args=((1, 0, 3), 1), deferred="sizes")
    assert [p.shape for p in td.zeros((2, 5)).split([2, 3], dim=1)] == [(2, 2), (2, 3)]
    assert [p.shape for p in td.zeros(0).split(3)] == [(0,)]
    with pytest.raises(td.ShapeError, match="add up to 4, but axis 0 has size 5"):
        td.arange(5).split([2, 2])
    with pytest.raises(td.ValueRangeError):
        td.arange(5).split(0)


def test_split_grad_is_one_concat():
    x = td.tensor(np.arange(12.0).reshape(3, 4), requires_grad=True)
    first, _, third = x.split(1)
    (first * 2 + third).sum().backward()  # the second is not used
    np.testing.assert_array_equal(x.grad.numpy(), [[2] * 4, [0] * 4, [1] * 4])


def test_chunk():
    check_op(
        td.chunk, lambda x: tuple(x[i : i + 2] for i in range(0, 5, 2)), shapes=[(5, 2)], args=(3,), deferred="sizes"
    )
    assert [p.shape for p in td.zeros((2, 4)).chunk(4, dim=1)] == [(2, 1)] * 4
    assert [p.shape for p in td.zeros(0).chunk(3)] == [(0,)] * 3
    assert len(td.arange(3).chunk(5)) == 3


def test_tensor_split():
    check_op(td.tensor_split, lambda x: np.array_split(x, 3), shapes=[(5, 2), (2,), (0,)], args=(3,), deferred="sizes")
    at = (1, 4, 3, -1, 9)
    check_op(td.tensor_split, lambda x: np.array_split(x, at), shapes=[(5, 2)], args=(at,), deferred="sizes")


@pytest.mark.parametrize("name", ["hsplit", "vsplit", "dsplit"])
def test_even_splits(name):
    halves = lambda x: getattr(np, name)(x, 2)
    check_op(getattr(td, name), halves, shapes=[(2, 4, 6)], args=(2,), test_layouts=False, deferred="sizes")
    with pytest.raises(td.ShapeError, match="use tensor_split"):
        getattr(td, name)(td.zeros((3, 3, 3)), 2)


def test_unbind():
    check_op(td.unbind, lambda x: tuple(x), shapes=[(3, 2), (2,)], deferred="sizes")
    check_op(td.unbind, lambda x: tuple(x.swapaxes(0, 1)), shapes=[(3, 2)], kwargs={"axis": 1}, deferred="sizes")
    assert [float(t) for t in td.unstack(td.tensor([1.0, 2.0]))] == [1.0, 2.0]
    assert td.unbind(td.zeros((0, 2))) == ()


def test_unbind_many():
    x = td.ones((300, 2), requires_grad=True)
    total = sum((part * i).sum() for i, part in enumerate(x.unbind()))
    total.backward()
    np.testing.assert_array_equal(x.grad.numpy()[:, 1], np.arange(300))


# -- rearranging


def test_flip():
    check_op(td.flip, np.flip, shapes=[(3, 4), (), (0, 2), (5,)])
    check_op(td.flip, lambda x: np.flip(x, 1), shapes=[(3, 4)], kwargs={"axis": 1})
    x = td.arange(3)
    assert td.flip(x)[0] == 2 and td.flip(x).data_ptr() == x.data_ptr() + 16


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


def test_meshgrid():
    for indexing in ("xy", "ij"):
        check_op(td.meshgrid, lambda *x, i=indexing: np.meshgrid(*x, indexing=i),
             shapes=[((2,), (3,)), ((2,), (3,), (4,)), ((2,),)],
                 kwargs={"indexing": indexing}, test_layouts=False)  # fmt: skip
    with pytest.raises(td.ValueRangeError):
        td.meshgrid(td.zeros(2), indexing="yx")


def test_narrow():
    check_op(td.narrow, lambda x: x[:, 1:3], shapes=[(3, 4)], args=(1, 1, 2))
    assert td.arange(5).narrow(0, -2, 2).tolist() == [3, 4]
    with pytest.raises(td.IndexRangeError):
        td.arange(5).narrow(0, 3, 3)


def test_select():
    check_op(td.select, lambda x: x[:, -2], shapes=[(3, 4)], args=(1, -2))
    with pytest.raises(td.IndexRangeError, match="index 4 is out of range for axis 1 with size 4"):
        td.zeros((3, 4)).select(1, 4)


def test_slice_axis():
    check_op(F.slice_axis, lambda x: x[1:6:2], shapes=[(7, 2)], args=(0, 1, 3, 2))


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
