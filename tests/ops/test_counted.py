"""Results whose size depends on the data: in one call, of every layout, with gradients and in compiled functions the other way."""

import numpy as np
import pytest

import tandem as td

RNG = np.random.default_rng(0)
LAYOUTS = {
    "rows": lambda x: x,
    "columns": lambda x: x.T,
    "steps": lambda x: x[::2, 1::3],
    "backwards": lambda x: x[::-1],
    "empty": lambda x: x[:0],
}


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32", "complex64", "float16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_nonzero(dtype, layout):
    base = (RNG.integers(0, 3, (60, 90)) == 0).astype(dtype)
    for x in (base, np.zeros_like(base)):
        view, expected = LAYOUTS[layout](td.tensor(x)), np.nonzero(LAYOUTS[layout](x))
        made = td.nonzero(view)
        assert len(made) == 2
        for a, b in zip(made, expected, strict=True):
            np.testing.assert_array_equal(a.numpy(), b)
        np.testing.assert_array_equal(view.nonzero().numpy(), np.stack(expected, 1))


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float32", "int64", "complex128"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_masks(dtype, layout):
    base = RNG.integers(0, 100, (60, 90)).astype(dtype)
    look = LAYOUTS[layout]
    x, view = look(base), look(td.tensor(base))
    mask = RNG.integers(0, 2, x.shape).astype(bool)
    np.testing.assert_array_equal(view[td.tensor(mask)].numpy(), x[mask])
    np.testing.assert_array_equal(td.masked_select(view, td.tensor(mask)).numpy(), x[mask])
    rows = RNG.integers(0, 2, x.shape[0]).astype(bool)
    np.testing.assert_array_equal(view[td.tensor(rows)].numpy(), x[rows])
    turned = td.tensor(np.ascontiguousarray(mask.T)).T
    np.testing.assert_array_equal(view[turned].numpy(), x[mask])


def test_masks_with_gradients_and_compiled():
    x = td.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x[td.tensor([True, False, True])].sum().backward()
    assert x.grad.tolist() == [1, 0, 1]
    mask = td.tensor([True, False, True])
    assert td.compile(lambda v: (v[mask] * 2).sum())(td.tensor([1.0, 2.0, 3.0])).item() == 8
    assert td.compile(lambda v: td.nonzero(v > 1.5)[0].sum())(td.tensor([1.0, 2.0, 3.0])).item() == 3
    assert td.compile(lambda v: td.unique(v).sum())(td.tensor([1, 2, 2])).item() == 3


def test_bincount():
    for n in (0, 5, 100000):
        x = RNG.integers(0, 50, n)
        np.testing.assert_array_equal(td.bincount(td.tensor(x)).numpy(), np.bincount(x))
        made = td.bincount(td.tensor(x)[::2], minlength=70).numpy()
        np.testing.assert_array_equal(made, np.bincount(x[::2], minlength=70))
    with pytest.raises(td.ValueRangeError, match="x contains -3"):
        td.bincount(td.tensor([1, -3]))


@pytest.mark.parametrize("dtype", ["int64", "float32", "float16", "complex64", "bool"])
def test_unique(dtype):
    x = RNG.integers(0, 30, (40, 50)).astype(dtype)
    t = td.tensor(x)
    values, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(td.unique(t).numpy(), values)
    made = td.unique(t, return_inverse=True, return_counts=True)
    for a, b in zip(made, (values, inverse.reshape(x.shape), counts), strict=True):
        np.testing.assert_array_equal(a.numpy(), b)
    flat = np.sort(x.ravel())[:: -1 if dtype != "complex64" else 1].copy()
    starts = np.flatnonzero(np.concatenate([[True], flat[1:] != flat[:-1]]))
    for view in (td.tensor(flat), td.tensor(np.stack([flat, flat], 1))[:, 0]):
        made = td.unique_consecutive(view, return_inverse=True, return_counts=True)
        np.testing.assert_array_equal(made[0].numpy(), flat[starts])
        np.testing.assert_array_equal(made[1].numpy(), np.repeat(np.arange(len(starts)), np.diff([*starts, len(flat)])))
        np.testing.assert_array_equal(made[2].numpy(), np.diff([*starts, len(flat)]))
    assert td.unique_consecutive(t[:0]).shape == (0,)


def test_every_nan_is_one_of_its_own():
    x = td.tensor([float("nan"), 1.0, 1.0, float("nan")])
    assert td.unique(x).shape == td.unique_consecutive(x).shape == (3,)


@pytest.mark.parametrize("offset", [0, 2, -2, 9, -9, 2**62])
def test_triangles(offset):
    for rows, columns in ((4, 6), (6, 4), (1, 1), (0, 3)):
        keep = min(max(offset, -20), 20)
        made = td.tril_indices(rows, columns, offset).numpy()
        np.testing.assert_array_equal(made, np.stack(np.tril_indices(rows, keep, columns)))
        made = td.triu_indices(rows, columns, offset).numpy()
        np.testing.assert_array_equal(made, np.stack(np.triu_indices(rows, keep, columns)))
    with pytest.raises(td.ShapeError):
        td.tril_indices(-1, 3)


def test_rolling_by_any_shift_takes_one_plan():
    x = np.arange(24).reshape(2, 3, 4)
    for shift in (0, 1, -1, 5, 23, -30, 10**12):
        np.testing.assert_array_equal(td.roll(td.tensor(x), shift).numpy(), np.roll(x, shift))
        made = td.roll(td.tensor(x).transpose(0, 2), (shift, 2, -shift), (0, 1, 2)).numpy()
        np.testing.assert_array_equal(made, np.roll(x.swapaxes(0, 2), (shift, 2, -shift), (0, 1, 2)))
        np.testing.assert_array_equal(td.roll(td.tensor(x), (shift, 1), (1, 1)).numpy(), np.roll(x, shift + 1, 1))
    assert td.roll(td.zeros(0, 3), 2, 0).shape == (0, 3)


def test_transposed_copies():
    for dtype in ("float32", "int32", "float64", "int8"):
        for shape in ((1, 5), (7, 9), (8, 8), (65, 130), (3, 70, 67)):
            x = RNG.integers(0, 100, shape).astype(dtype)
            np.testing.assert_array_equal(td.tensor(x).mT.contiguous().numpy(), x.swapaxes(-1, -2))
            np.testing.assert_array_equal(td.tensor(x)[..., ::2].mT.contiguous().numpy(), x[..., ::2].swapaxes(-1, -2))
