"""Making, copying, indexing and taking apart arrays, by the rules that the standard states beyond NumPy's or PyTorch's habits."""

import math

import numpy as np
import pytest

import tandem as td
from tests.array_api import standard

REAL = [getattr(td, name) for name in standard.DTYPES if not name.startswith("complex")]


def test_copy_says_whether_memory_is_shared():
    x = td.ones((2, 3))
    for copied in (
        td.asarray(x, copy=True), td.astype(x, td.float32), td.reshape(x, (6,), copy=True), td.from_dlpack(x, copy=True)
    ):  # fmt: skip
        copied[0] = 5
    assert td.all(x == 1)
    shared = [td.asarray(x), td.asarray(x, copy=False), td.astype(x, td.float32, copy=False), td.from_dlpack(x)]
    shared += [td.reshape(x, (6,), copy=False), td.reshape(x, (3, 2)), td.from_dlpack(x, copy=False)]
    for i, alias in enumerate(shared):
        td.reshape(alias, (6,))[5] = i
        assert x[1, 2].item() == i
    for refused in (
        lambda: td.asarray([1, 2], copy=False), lambda: td.asarray(x, dtype=td.int8, copy=False),
        lambda: td.reshape(td.matrix_transpose(x), (6,), copy=False),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            refused()


def test_arrays_of_arrays_and_numbers():
    assert td.asarray([td.asarray(1), td.asarray(2)]).tolist() == [1, 2]
    assert td.asarray(True).dtype is td.bool and td.asarray([1, 2.5]).dtype is td.float32
    assert td.asarray(b"\x01\x02").tolist() == [1, 2]
    for shape in (3, (3,), [3]):
        assert td.zeros(shape).shape == td.ones(shape=shape).shape == td.empty(size=shape).shape == (3,)
    assert td.zeros(()).shape == td.zeros().shape == () and td.zeros(2, 3).shape == (2, 3)
    with pytest.raises(ValueError):
        td.zeros((2, 3), 4)


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_masks(dtype):
    x = td.astype(td.asarray([[0, 1, 2], [3, 0, 5]]), dtype)
    mask = td.astype(x, td.bool)
    a, m = x.numpy().copy(), mask.numpy()
    assert x[mask].tolist() == a[m].tolist()
    assert x[td.asarray([True, False])].tolist() == a[[True, False]].tolist()
    assert x[td.asarray(True)].shape == (1, 2, 3) and x[td.asarray(False)].shape == (0, 2, 3)
    assert x[td.zeros((0,), dtype=td.bool)].shape == (0, 3)
    for wrong in ((3,), (2, 2), (2, 3, 1)):
        with pytest.raises(IndexError):
            x[td.ones(wrong, dtype=td.bool)]
    x[mask] = td.asarray(1, dtype=dtype)
    x[td.zeros((2, 0), dtype=td.bool)] = 1
    a[m] = 1
    assert x.tolist() == a.tolist()


def test_integer_arrays_as_indices():
    x = td.reshape(td.arange(12), (3, 4))
    for index in (td.int8, td.uint64, td.int64):
        rows, columns = td.asarray([2, 0], dtype=index), td.asarray([[1], [3]], dtype=index)
        assert x[rows, columns].tolist() == [[9, 1], [11, 3]] and x[rows, 1].tolist() == [9, 1]
    x[td.asarray([0, -1]), td.asarray([0, -1])] = 100
    assert x[0, 0].item() == x[2, 3].item() == 100
    with pytest.raises(IndexError):
        x[td.asarray([3])]


@pytest.mark.parametrize("count", [1, 5, 40])
def test_isin(count):
    rng = np.random.default_rng(count)
    x, values = rng.integers(0, 60, (4, 9)), rng.integers(0, 60, (count, 1))
    np.testing.assert_array_equal(td.isin(td.asarray(x), td.asarray(values)).numpy(), np.isin(x, values))
    np.testing.assert_array_equal(
        td.isin(td.asarray(x), td.asarray(values), invert=True).numpy(), np.isin(x, values, invert=True)
    )
    assert td.isin(int(values[0, 0]), td.asarray(values)).item() is True and td.isin(td.asarray(x), 99).shape == (4, 9)


def test_searchsorted():
    line, values = np.asarray([5, 1, 9, 1, 7]), np.asarray([[0, 1], [6, 10]])
    order = np.argsort(line)
    for side in ("left", "right"):
        wanted = np.searchsorted(line, values, side, order)
        got = td.searchsorted(td.asarray(line), td.asarray(values), side=side, sorter=td.asarray(order))
        assert got.tolist() == wanted.tolist() and got.dtype is td.int64
    assert td.searchsorted(td.asarray([1.0, 2.0]), 1.5).tolist() == 1
    with pytest.raises(ValueError, match="argsort"):
        td.searchsorted(td.asarray(line), td.asarray(values), sorter=td.asarray([0, 1]))


def test_functions_where_methods_are_pytorchs():
    x = td.asarray([[0, 1], [2, 3]])
    assert td.repeat(x, 2).tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and x.repeat(1, 2).tolist() == [
        [0, 1, 0, 1],
        [2, 3, 2, 3],
    ]
    assert td.repeat(x, td.asarray([1, 2]), axis=0).tolist() == [[0, 1], [2, 3], [2, 3]]
    assert [t.tolist() for t in td.nonzero(x)] == [[0, 1, 1], [1, 0, 1]] and x.nonzero().shape == (3, 2)
    assert isinstance(td.sort(x), td.Tensor) and x.sort().indices.shape == (2, 2)
    assert x.squeeze(0).shape == (2, 2)
    with pytest.raises(ValueError, match="size 2"):
        td.squeeze(x, 0)
    with pytest.raises(ValueError):
        td.nonzero(td.asarray(1))
    assert td.std(td.asarray([1.0, 3.0])).item() == 1.0
    for shape in ((), (3,), (2, 3, 4)):
        with pytest.raises(ValueError):
            td.zeros(shape).T


def test_shapes():
    x = td.zeros((2, 3))
    assert td.expand_dims(x, axis=(0, -1)).shape == (1, 2, 3, 1) and td.squeeze(x[None], axis=0).shape == (2, 3)
    for axis in (3, -4, (0, 0), (0, 4)):
        with pytest.raises((IndexError, ValueError)):
            td.expand_dims(x, axis=axis)
    with pytest.raises(IndexError):
        td.expand_dims(x, axis=3)
    assert td.broadcast_shapes((2, 1), (3,), ()) == (2, 3) and td.broadcast_shapes() == ()
    with pytest.raises(ValueError):
        td.broadcast_shapes((2,), (3,))
    a, b = td.broadcast_arrays(td.zeros((2, 1), dtype=td.int8), td.zeros(3))
    assert a.shape == b.shape == (2, 3) and a.dtype is td.int8 and b.dtype is td.float32
    assert isinstance(td.unstack(x), tuple) and isinstance(td.meshgrid(x[0], x[0]), tuple)


def test_numbers_of_arrays():
    assert int(td.asarray(3.7)) == 3 and float(td.asarray(2)) == 2.0 and complex(td.asarray(2.0)) == 2 + 0j
    assert bool(td.asarray(math.nan)) is True and bool(td.asarray(0)) is False and td.asarray(5).__index__() == 5
    for kind, wrong in (
        (ValueError, lambda: int(td.asarray(math.nan))),
        (OverflowError, lambda: int(td.asarray(math.inf))),
        (TypeError, lambda: td.asarray(1.0).__index__()),
        ((TypeError, ValueError), lambda: bool(td.zeros(2))),
    ):
        with pytest.raises(kind):
            wrong()
    assert [v.item() for v in td.arange(3)] == [0, 1, 2]
    assert math.isnan(complex(td.asarray(math.nan)).imag) and complex(td.asarray(True)) == 1 + 0j


def test_small_methods():
    x = td.asarray([[1.0, -2.0]])
    assert x.cfloat().dtype is td.complex64 and x.cdouble().dtype is td.complex128 and x.char().dtype is td.int8
    assert not x.is_conj() and td.all(x.resolve_neg() == x)
    y = x.view_as_self()
    y[0, 0] = 5
    assert x[0, 0].item() == 5
    np.testing.assert_allclose(td.fft.ifft2(x).numpy(), np.fft.ifft2(x.numpy()))


def test_numbers_that_only_some_types_hold():
    z, u, large = td.zeros(2, dtype=td.complex128), td.zeros(2, dtype=td.uint64), 2**64 - 1
    for key in (0, td.asarray([True, False]), td.asarray([0]), ...):
        z[key] = 16777217j  # not a complex64
        u[key] = large
        assert z[0].item() == 16777217j and u[0].item() == large
    assert (u & large).tolist() == td.full((2,), large, dtype=td.uint64).tolist() == [large, large]
    assert (u == large).tolist() == [True, True] and (u - (large - 1)).tolist() == [1, 1]
    assert td.where(u == 0, u, 2**63).tolist() == td.minimum(u, 2**63).tolist() == [2**63, 2**63]
    with pytest.raises(OverflowError, match="beyond 64 bits"):
        u + 2**64


@pytest.mark.parametrize("dtype", [*REAL, td.float16, td.bfloat16], ids=str)
@pytest.mark.parametrize("size", [7, 300])
def test_order(dtype, size):
    data = np.random.default_rng(size).normal(0, 50, (3, size))
    x = td.asarray(data if dtype.is_floating else np.abs(data)).to(dtype)
    a = x.to(td.float64).numpy()
    for descending in (False, True):
        for axis in (0, 1):
            wanted = np.sort(a, axis)
            wanted = np.flip(wanted, axis) if descending else wanted
            np.testing.assert_array_equal(td.sort(x, axis=axis, descending=descending).to(td.float64).numpy(), wanted)
            order = td.argsort(x, axis=axis, descending=descending)
            np.testing.assert_array_equal(td.take_along_axis(x, order, axis=axis).to(td.float64).numpy(), wanted)


def test_order_of_special_numbers():
    x = td.asarray([math.nan, 1.0, -math.inf, math.inf, -math.nan, -0.0, 0.0])
    assert str(td.sort(x).tolist()) == "[-inf, -0.0, 0.0, 1.0, inf, nan, nan]"
    assert str(td.sort(x, descending=True).tolist()) == "[nan, nan, inf, 1.0, 0.0, -0.0, -inf]"
    assert td.argsort(td.asarray([0.0, -0.0, 1.0, 1.0])).tolist() == [0, 1, 2, 3]  # equal ones keep their order
    assert td.argsort(td.asarray([0.0, -0.0, 1.0, 1.0]), descending=True).tolist() == [2, 3, 0, 1]


def test_product_in_place():
    x, y = td.asarray([[1.0, 2.0], [3.0, 4.0]]), td.asarray([[0.0, 1.0], [1.0, 0.0]])
    same = x
    x @= y
    assert x is same and x.tolist() == [[2, 1], [4, 3]]
    with pytest.raises(ValueError, match="in place"):
        x @= td.ones((2, 3))
