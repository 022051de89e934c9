"""Concatenation, stacks and splits."""

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tests.check import check_op

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


# -- many


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("count", [17, 31, 300])
def test_many_tensors_joined_are_what_numpy_gives(count, axis):
    rng = np.random.default_rng(count)
    arrays = [rng.standard_normal((2, 3)).astype(np.float32) for _ in range(count)]
    tensors = [td.tensor(a, requires_grad=i % 3 > 0) for i, a in enumerate(arrays)]
    for ours, theirs in ((td.concat, np.concatenate), (td.stack, np.stack)):
        made = ours(tensors, axis)
        want = theirs(arrays, axis)
        assert made.shape == want.shape and np.array_equal(made.detach().numpy(), want)
        scale = rng.standard_normal(want.shape).astype(np.float32)
        (made * td.tensor(scale)).sum().backward()
        parts = np.split(scale, count, axis) if ours is td.concat else np.moveaxis(scale, axis, 0)
        for i, (t, part) in enumerate(zip(tensors, parts, strict=True)):
            assert (t.grad is None) if i % 3 == 0 else np.array_equal(t.grad.numpy(), part)
            t.grad = None


def test_many_rows_of_different_lengths():
    tensors = [td.full((k % 4 + 1, 2), float(k)) for k in range(40)]
    assert np.array_equal(td.cat(tensors).numpy(), np.concatenate([t.numpy() for t in tensors]))


def test_plans_are_few_whatever_number_of_tensors_comes():
    before = td.stack.num_plans + td.concat.num_plans
    for count in range(17, 200):
        tensors = [td.ones(3, dtype=td.float64) for _ in range(count)]
        td.stack(tensors)
        td.concat(tensors)
    assert td.stack.num_plans + td.concat.num_plans - before < 60  # one for each number would be 366


def test_shapes_that_do_not_fit_are_named_by_their_number():
    tensors = [td.ones(2, 3) for _ in range(40)]
    tensors[33] = td.ones(2, 4)
    for join in (td.concat, td.stack):
        with pytest.raises(td.errors.ShapeError, match="tensor 33"):
            join(tensors)
    mixed = td.concat([*tensors[:33], td.ones(2, 3, dtype=td.float64)])
    assert mixed.dtype is td.float64 and mixed.shape == (68, 3)
    with pytest.raises(td.errors.AxisError):
        td.stack(tensors[:20], 5)
