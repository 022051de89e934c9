"""Items read and written by keys."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tandem as td
from tests.check import check_gradients

X = np.arange(24.0).reshape(2, 3, 4)


B = np.array([[True, False, True], [False, True, False]])


KEYS = [
    0, -1, (1, 2), (slice(None), 1), (Ellipsis, 2), (0, Ellipsis, -1), None, (None, 1), (slice(None), None, 2), Ellipsis, (),
    slice(1, None), slice(None, None, -1), (slice(None), slice(None, None, 2)), (slice(5, 1, -2), slice(-2, None)),
    slice(0, 0), (slice(3, 1), 0), (slice(-10, 10), slice(None), slice(100, -100, -1)), slice(None, 10**30, 10**30),
    [0, 1, 1], [-1], ([0, 1], [2, 0]), ([[0], [1]], [0, 2, 1]), (slice(None), [0, 2]), (0, [1, 2]), ([0, 1], slice(None), [1, 3]),
    ([1, 0], Ellipsis, 2), (slice(None), [0, 1], [1, 2]), (slice(None), 1, [1, 2]), (1, slice(None), [0, 3]), (None, [1], [2]),
    ([1], None, [2]), (slice(None), None, [2, 1], 3), (slice(1, 2), [[0, 1], [2, 0]]), [], ([], [], []), (slice(None), [], 0),
    B, (B, 1), (B, slice(None, None, 2)), (0, B[0]), (slice(None), B[0]), (Ellipsis, np.array([True, False, True, True])),
    np.zeros((2, 3, 4), bool), X > 5, (slice(None), B[0], [0, 1]), True, False, (True, 0), (0, True), np.int64(1), np.array(1),
    np.array([1, 0]), (slice(None), [0], Ellipsis, [1]), (np.int32(1), slice(np.int64(0), np.int8(2))),
    (Ellipsis, None), ((0, 1), (1, 2)), [True, False],
]  # fmt: skip


def as_key(key):
    """NumPy's key in our tensors, every other time."""
    if isinstance(key, tuple):
        return tuple(as_key(k) for k in key)
    return td.tensor(key) if isinstance(key, np.ndarray) else key


def is_int(k) -> bool:
    return (isinstance(k, (int, np.integer)) and not isinstance(k, bool)) or (
        isinstance(k, np.ndarray) and k.ndim == 0 and k.dtype.kind == "i"
    )


def integers_first(x, key) -> tuple:
    """(y, rest) so that NumPy's y[rest] is what PyTorch has for x[key]: integers are applied before index arrays are."""
    key = tuple(
        np.array(k) if isinstance(k, (list, tuple)) and k else k for k in (key if isinstance(key, tuple) else (key,))
    )

    def width(k) -> int:
        if k is None or k is Ellipsis or isinstance(k, bool):
            return 0
        return k.ndim if getattr(k, "dtype", None) is np.dtype(bool) else 1

    skipped = x.ndim - sum(width(k) for k in key)
    basic, rest = [], []
    for k in key:
        if k is Ellipsis:
            basic += [slice(None)] * skipped
            rest += [slice(None)] * skipped
        elif is_int(k):
            basic.append(int(k))
        else:
            basic += [slice(None)] * width(k)
            rest.append(k)
    return x[tuple(basic)] if basic else x, tuple(rest)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_getitem(key):
    x = td.tensor(X)
    inner, rest = integers_first(X, key)
    expected = inner[rest]
    for k in (key, as_key(key)):
        got = x[k]
        assert got.shape == expected.shape
        np.testing.assert_array_equal(got.numpy(), expected)
    moved = td.tensor(np.ascontiguousarray(X.T)).permute(2, 1, 0)
    np.testing.assert_array_equal(moved[key].numpy(), expected)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_setitem(key):
    inner, rest = integers_first(X, key)
    shape = inner[rest].shape
    values = [7, np.arange(np.prod(shape, dtype=int)).reshape(shape) + 100.0]
    if not (len(rest) == 1 and isinstance(rest[0], np.ndarray) and rest[0].ndim > 1):
        # NumPy takes 1-d values only there; we take more
        values.append(np.full((1, 1, *shape[-1:]), -1.5))
    for value in values:
        expected, x, moved = X.copy(), td.tensor(X), td.tensor(np.ascontiguousarray(X.T)).permute(2, 1, 0)
        integers_first(expected, key)[0][rest] = value
        x[as_key(key)] = value if np.isscalar(value) else td.tensor(value)
        moved[key] = value
        np.testing.assert_array_equal(x.numpy(), expected)
        np.testing.assert_array_equal(moved.numpy(), expected)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_in_place_operator_on_items(key):
    expected, x = X.copy(), td.tensor(X)
    inner, rest = integers_first(expected, key)
    inner[rest] += 10
    x[key] += 10
    inner[rest] *= 2
    x[key] *= 2
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize("key", [k for k in KEYS if not isinstance(k, np.ndarray) or k.size < 20][::3], ids=str)
def test_gradients(key):
    check_gradients(lambda x: x[key] * x[key], (X,), second=False)

    def write(x, v):
        y = x * 1.0
        y[key] = v * v
        return y * y

    check_gradients(write, (X, np.asarray(1.5)), second=False)


def test_second_derivative_of_items():
    check_gradients(lambda x: x[[0, 1, 1]] ** 3, (np.array([1.5, -2.0]),))
    check_gradients(lambda x: x[1:] * x[:-1], (np.array([1.5, -2.0, 0.5]),))


def test_basic_keys_are_views():
    x = td.tensor(X)
    view = x[1, ::2, None]
    view += 100
    assert float(x[1, 2, 0]) == 120 and float(x[1, 1, 0]) == 16
    copy = x[[0]]
    copy += 1
    assert float(x[0, 0, 0]) == 0


def test_repeated_positions():
    x = td.zeros(3)
    x[[0, 0, 0]] += 1  # read once, written once
    assert x.tolist() == [1, 0, 0]
    x.index_put_((td.tensor([1, 1]),), td.ones(2), accumulate=True)
    assert x.tolist() == [1, 2, 0]
    x[[2, 2]] = td.tensor([5.0, 6.0])
    assert float(x[2]) == 6


def test_values_are_converted():
    x = td.zeros(3, dtype=td.int64)
    x[0] = 1.9
    x[1:] = td.tensor([2.9, -3.9])
    assert x.tolist() == [1, 2, -3]
    y = td.zeros(2)
    y[:] = [1, 2]
    y[1] = True
    assert y.tolist() == [1, 1]


ERRORS = [
    (5, "index 5 is out of range for axis 0 with size 2"),
    (-3, "index -3 is out of range for axis 0 with size 2"),
    ((0, slice(None), 4), "index 4 is out of range for axis 2 with size 4"),
    ((0, 0, 0, 0), "4 indices for a tensor of shape \\(2, 3, 4\\)"),
    ((Ellipsis, Ellipsis), "more than one ellipsis"),
    ([0, 2], "2 .*axis 0.*2"),
    ((slice(None), [0, -4]), "-4 .*axis 1.*3"),
    (([0], [0], [0], [0]), "4 indices"),
    (np.zeros(3, bool), "mask of shape \\(3,\\)"),
    (np.zeros((2, 3, 4, 1), bool), "4 indices|mask"),
    (10**30, "out of range"),
    ((slice(None), 5, [0]), "index 5 is out of range for axis 1 with size 3"),
    (slice(None, None, 0), "step 0"),
]


@pytest.mark.parametrize(("key", "text"), ERRORS, ids=str)
def test_errors(key, text):
    x = td.tensor(X)
    with pytest.raises(IndexError, match=text):
        x[key]
    with pytest.raises(IndexError, match=text):
        x[key] = 1.0
    np.testing.assert_array_equal(x.numpy(), X)


def test_wrong_types():
    x = td.tensor(X)
    for key in (1.5, "a", [0.5], td.tensor([0.5]), slice(0.5, 2), object(), {}):
        with pytest.raises(TypeError):
            x[key]
    with pytest.raises(td.ShapeError):
        x[[0, 1], [0, 1, 2]]
    with pytest.raises(td.ShapeError):
        x[0] = td.zeros((2, 4))
    with pytest.raises(td.ShapeError):
        x[[0, 1]] = td.zeros(3)
    with pytest.raises(TypeError):
        del x[0]
    np.testing.assert_array_equal(x.numpy(), X)


def test_iteration():
    x = td.tensor(X)
    assert [r.shape for r in x] == [(3, 4)] * 2
    a, b = td.tensor([1.0, 2.0])
    assert (float(a), float(b)) == (1, 2)
    with pytest.raises(TypeError):
        iter(td.tensor(1.0))
    assert len(x) == 2 and 5 in x and 99 not in x


# -- random keys


@st.composite
def keyed_arrays(draw):
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=0, max_size=4)))
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    if draw(st.booleans()):
        x = np.ascontiguousarray(x.T).T
    key, axis = [], 0
    fancy = draw(st.none() | st.sampled_from([(), (2,), (1, 2), (2, 1), (0,)]))
    ellipsis = False
    while axis < x.ndim and draw(st.integers(0, 5)):
        kind = draw(st.sampled_from(["int", "slice", "slice", "none", "ellipsis", "array", "mask"]))
        n = x.shape[axis]
        if kind == "none":
            key.append(None)
            if len(key) > 6:
                break
            continue
        if kind == "ellipsis":
            if not ellipsis:
                skipped = draw(st.integers(0, x.ndim - axis))
                key.append((skipped,))  # worked out below
                ellipsis = True
                axis += skipped
            continue
        if kind == "int" and n:
            key.append(draw(st.integers(-n, n - 1)))
        elif kind == "array" and fancy is not None and n:
            key.append(
                np.array(
                    draw(st.lists(st.integers(-n, n - 1), min_size=int(np.prod(fancy)), max_size=int(np.prod(fancy)))),
                    dtype=int,
                ).reshape(fancy)
            )
        elif (
            kind == "mask"
            and fancy in (None, (), (1, 2), (2,))
            and n
            and not any(isinstance(k, np.ndarray) for k in key)
        ):
            width = draw(st.integers(1, min(2, x.ndim - axis)))
            mask = np.zeros(x.shape[axis : axis + width], bool)
            count = draw(st.sampled_from([0, 1])) if fancy is None else {(): 1, (2,): 2, (1, 2): 2}[fancy]
            flat = mask.reshape(-1)
            flat[: min(count, flat.size)] = True
            key.append(mask)
            axis += width - 1
        else:
            key.append(
                slice(
                    *(draw(st.none() | st.integers(-6, 6)) for _ in range(2)),
                    draw(st.none() | st.sampled_from([-2, -1, 1, 2, 3])),
                )
            )
        axis += 1
    if ellipsis:  # entries after it must reach the end
        key = [k if not (isinstance(k, tuple) and len(k) == 1) else Ellipsis for k in key]
        key += [slice(None)] * (x.ndim - axis)
    return x, tuple(key)


def test_integers_go_before_index_tensors_as_in_pytorch():
    x = td.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    index = td.tensor([0, 1, 1])
    assert x[0, :, index].shape == (3, 3, 5)
    assert x[:, 2, :, index].shape == (2, 4, 3)
    assert td.equal(x[0, :, index], x[0][:, index]).all()
    assert x[index, 0, index].shape == (3, 5)
    assert x[index, :, index].shape == (3, 3, 5)
    x[0, :, index] = td.zeros(3, 3, 5, dtype=td.int64)
    assert int(x[0, :, :2].sum()) == 0 and int(x[0, :, 2:].sum()) > 0


def test_a_range_is_an_index():
    x = td.arange(6).reshape(3, 2)
    assert x[range(2)].tolist() == [[0, 1], [2, 3]]
    assert x[:, range(1, 2)].tolist() == [[1], [3], [5]]


@settings(max_examples=300, deadline=None)
@given(keyed_arrays(), st.booleans())
def test_random_keys(case, ours):
    x, key = case
    t = td.tensor(x)
    try:
        inner, rest = integers_first(x, key)
        expected = inner[rest]
    except IndexError:
        with pytest.raises((IndexError, td.ShapeError)):
            t[key]
        return
    got = t[as_key(key) if ours else key]
    assert got.shape == expected.shape, key
    np.testing.assert_array_equal(got.numpy(), expected)
    written, target = x.copy(), td.tensor(x)
    inner, rest = integers_first(written, key)
    if inner.ndim == 0:
        return
    values = np.arange(expected.size).reshape(expected.shape) + 1000
    inner[rest] = values
    target[key] = td.tensor(values)
    np.testing.assert_array_equal(target.numpy(), written)
    inner[rest] -= 5
    target[key] -= 5
    np.testing.assert_array_equal(target.numpy(), written)


@pytest.mark.parametrize("index", [1.0, td.tensor([1.0]), "a"])
@pytest.mark.parametrize("error", [TypeError, IndexError])
def test_what_is_no_index_is_refused_as_in_python_and_in_pytorch(index, error):
    with pytest.raises(error, match=r"cannot be an index|must hold integers or booleans"):
        td.zeros(3)[index]
