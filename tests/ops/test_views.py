import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tandem as td
import tandem.ops as F
from tandem.ops.views import view_strides
from tests.check import check_op


def test_view():
    x = td.arange(12).reshape(3, 4)
    assert x.view(2, 6).data_ptr() == x.data_ptr()
    assert x.view(-1).shape == x.view((12,)).shape == (12,)
    assert td.view_as(x, td.zeros((6, 2))).shape == td.reshape_as(x, td.zeros((6, 2))).shape == (6, 2)
    check_op(td.view, lambda x: x.reshape(2, -1), shapes=[(3, 4), (6,)], args=((2, -1),), test_layouts=False)
    with pytest.raises(td.ShapeError, match="cannot be viewed as \\(12,\\) without a copy"):
        x.T.view(12)
    with pytest.raises(td.ShapeError):
        x.view(5, 3)


def test_view_dtype():
    x = td.tensor([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(x.view(td.int32).numpy(), x.numpy().view(np.int32))
    np.testing.assert_array_equal(x.view(td.uint8).numpy(), x.numpy().view(np.uint8))
    np.testing.assert_array_equal(x.view(td.float64).numpy(), x.numpy().view(np.float64))
    x.view(td.int32)[0, 0] = 0
    assert float(x[0, 0]) == 0.0
    with pytest.raises(td.ShapeError):
        td.zeros((2, 3)).view(td.float64)
    with pytest.raises(td.ShapeError):
        td.zeros((2, 2)).T.view(td.uint8)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_view_strides_agree_with_numpy(data):
    """A view exists exactly where NumPy can reshape without a copy."""
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), max_size=4)))
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    x = x.transpose(data.draw(st.permutations(range(x.ndim))))
    if x.ndim and data.draw(st.booleans()):
        x = x[..., ::2]
    factors = [f for n in x.shape for f in ((2, 2) if n == 4 else (n,))]
    wanted = tuple(data.draw(st.permutations(factors)))
    made = view_strides(x.shape, tuple(s // x.itemsize for s in x.strides), wanted)
    base = x.view()
    try:
        base.shape = wanted
    except AttributeError:
        assert made is None
    else:
        assert made is not None
        seen = np.lib.stride_tricks.as_strided(x, wanted, [s * x.itemsize for s in made])
        np.testing.assert_array_equal(seen, base)


def test_contiguous():
    check_op(td.contiguous, lambda x: x, shapes=[(3, 4), (), (2, 3, 4), (0,)])
    check_op(F.row_major, lambda x: x, shapes=[(3, 4)])
    x = td.zeros((2, 3))
    assert x.contiguous() is x
    assert x.T.contiguous().strides == (2, 1)


def test_as_strided():
    check_op(td.as_strided, lambda x: np.lib.stride_tricks.as_strided(np.ascontiguousarray(x), (3, 2), (x.itemsize, x.itemsize)),
             shapes=[(5,), (2, 3)], args=((3, 2), (1, 1)), test_layouts=False, transforms=False)  # fmt: skip
    x = td.arange(6.0)
    y = td.as_strided(x, (2, 2), (3, 1), 1)
    assert y.tolist() == [[1, 2], [4, 5]]
    y[0, 0] = 10
    assert float(x[1]) == 10
    with pytest.raises(td.IndexRangeError):
        td.as_strided(x, (3, 3), (3, 1))
    with pytest.raises(td.IndexRangeError):
        td.as_strided(x, (3,), (-1,))


def test_as_strided_of_a_gap():
    """Elements of the memory that are not x's own get no gradient."""
    x = td.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    every_second = x[::2]
    (g,) = td.autograd.grad(td.as_strided(every_second, (4,), (1,)).sum(), every_second)
    assert g.tolist() == [1, 1]


@pytest.mark.parametrize("axis, size, step", [(0, 3, 1), (1, 2, 2), (1, 2, 3), (0, 1, 2), (-1, 3, 2), (1, 0, 1)])
def test_unfold_inside_of_a_compiled_function(axis, size, step):
    """Of a tensor that has no memory yet."""
    windows_end_with_a_step = (axis, size, step) not in [(1, 2, 3), (0, 1, 2)]  # others need memory
    f = lambda x: td.unfold(td.tanh(x), axis, size, step).square()
    x = td.randn(5, 5, dtype=td.float64, requires_grad=True)
    whole = td.compile(f, whole=windows_end_with_a_step)
    assert td.equal(f(x), whole(x)).all()
    expected = td.autograd.grad(f(x).sum(), x)[0]
    assert td.allclose(expected, td.autograd.grad(td.compile(f)(x).sum(), x)[0], rtol=1e-12)


def test_writes_through_windows_of_a_deferred_tensor_reach_it():
    def f(x):
        y = x * 2
        y.unfold(0, 2, 2)[:, 1] = 5
        return y

    assert [0, 5, 4, 5, 8] == f(td.arange(5)).tolist() == td.compile(f)(td.arange(5)).tolist()


def test_unfold():
    check_op(
        td.unfold,
        lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, 1)[:, ::2],
        shapes=[(2, 7), (2, 6)],
        args=(1, 3, 2),
        transforms=False,  # windows are views of memory
    )
    check_op(
        td.unfold,
        lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, 0),
        shapes=[(4, 2)],
        args=(0, 2, 1),
        transforms=False,
    )
    with pytest.raises(td.ShapeError):
        td.unfold(td.zeros(3), 0, 4, 1)
    with pytest.raises(td.ValueRangeError):
        td.unfold(td.zeros(3), 0, 2, 0)


@pytest.mark.parametrize("offset", [-3, -1, 0, 1, 5])
def test_diagonal(offset):
    check_op(
        td.diagonal, lambda x: np.diagonal(x, offset), shapes=[(3, 4), (2, 3, 4)], args=(offset,), second=offset == 1
    )
    check_op(td.diagonal, lambda x: np.diagonal(x, offset, -1, 0), shapes=[(2, 3, 4)], args=(offset, -1, 0), grad=False)


def test_views_share_memory():
    x = td.zeros((4, 4))
    td.diagonal(x)[:] = 1
    td.unfold(x, 1, 2, 2)[0, 1, :] = 5
    x.T[3, 3] = 9
    expected = np.eye(4)
    expected[0, 2:] = 5
    expected[3, 3] = 9
    np.testing.assert_array_equal(x.numpy(), expected)


def test_the_dtype_of_a_view_goes_by_its_name():
    assert td.tensor([1.0]).view(dtype=td.int32).tolist() == [1065353216]
