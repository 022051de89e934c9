"""What a conformance suite that draws its own arrays found: corners of the standard that no table lists."""

import math
import operator

import pytest

import tandem as td

INTEGERS = [td.int8, td.int16, td.int32, td.int64, td.uint8, td.uint16, td.uint32]


def test_as_many_axes_as_numpy_long_had():
    axes = td.__array_namespace_info__().capabilities()["max dimensions"]
    assert axes >= 32
    x = td.reshape(td.arange(4.0), (1,) * 10 + (2,) + (1,) * (axes - 12) + (2,))
    assert x.ndim == axes and x[(0,) * 10 + (1,) + (0,) * (axes - 11)].item() == 2
    turned = td.permute_dims(x, tuple(range(axes - 1, -1, -1)))  # a layout of its own: kernels see all the axes
    assert td.reshape(turned * 2 + 1, (-1,)).tolist() == [1, 5, 3, 7]
    assert td.sum(x, axis=axes - 1).shape == x.shape[:-1] and td.flip(x)[(0,) * axes].item() == 3
    assert td.asarray(x.tolist()).shape == x.shape
    with pytest.raises(ValueError, match="at most"):
        td.reshape(td.ones(1), (1,) * (axes + 1))


def test_layouts_that_differ_in_a_late_axis_have_plans_of_their_own():
    # The size-1 axes are part of a plan's key; axes past the sixteenth must count too.
    for shape in ((1,) * 17 + (2, 3), (1,) * 16 + (2, 1, 3), (2, *(1,) * 17, 3)):
        x = td.reshape(td.arange(6.0), shape)
        assert td.reshape(x + td.ones((3,)), (-1,)).tolist() == [1, 2, 3, 4, 5, 6]
        assert td.sum(x, axis=-1).shape == shape[:-1]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_beyond_int64_do_not_turn_integers_into_floats(dtype):
    x = td.asarray([1, 2], dtype=dtype)
    for number in (2**63, 2**64, -(2**63) - 1):
        for call in (lambda n: x + n, lambda n: n - x, lambda n: td.multiply(x, n), lambda n: td.where(x > 1, x, n)):
            with pytest.raises(OverflowError, match=dtype.name):
                call(number)


def test_integers_beyond_int64_meet_what_can_hold_them():
    assert (td.asarray([1], dtype=td.uint64) + 2**63).tolist() == [2**63 + 1]
    with pytest.raises(OverflowError):
        td.asarray([1], dtype=td.uint64) + 2**64
    for dtype in (td.float32, td.float64, td.complex64, td.complex128):
        x = td.asarray([1, 2], dtype=dtype)
        assert (x * 2**70).dtype is dtype and (x * 2**70).tolist() == [2.0**70, 2.0**71]
        assert td.equal(x * 2**64, 2**64).tolist() == [True, False]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_repeat_of_nothing_by_nothing(dtype):
    none = td.zeros((0,), dtype=dtype)
    assert td.repeat(td.zeros((0,)), none).shape == (0,)
    assert td.repeat(td.zeros((3, 0)), none, axis=1).shape == (3, 0)


@pytest.mark.parametrize("dtype", [td.complex64, td.complex128], ids=str)
def test_signs_of_complex_zeros(dtype):
    def zeros_of(name, *numbers):
        return [str(z) for z in getattr(td, name)(td.asarray(list(numbers), dtype=dtype)).tolist()]

    inf = math.inf
    assert zeros_of("expm1", complex(-0.0, 0.0), complex(0.0, 0.0), complex(-0.0, -0.0)) == ["0j", "0j", "-0j"]
    for y in (0.5, 2.0, 3.0, 1e10, inf):  # whatever sin(y) cos(y) says
        assert zeros_of("tanh", complex(inf, y), complex(inf, -y)) == ["(1+0j)", "(1-0j)"]
        assert zeros_of("tanh", complex(-inf, y), complex(-inf, -y)) == ["(-1+0j)", "(-1-0j)"]
    assert zeros_of("sqrt", complex(inf, 2.0), complex(-inf, 2.0)) == ["(inf+0j)", "infj"]


@pytest.mark.parametrize("dtype", [*INTEGERS, td.uint64], ids=str)
def test_comparisons_take_python_integers_as_they_are(dtype):
    info = td.iinfo(dtype)
    values = [info.min, info.min + 1, 44, info.max - 1, info.max]  # 44 is 300 in eight bits
    x = td.asarray(values, dtype=dtype)
    numbers = (-1, 0, 44, 256, 300, info.min - 1, info.max, info.max + 1, 2**63 - 1, -(2**63))
    for number in (n for n in numbers if -(2**63) <= n < 2**63):
        for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
            assert compare(x, number).tolist() == [compare(v, number) for v in values], (compare, number)
            assert compare(number, x).tolist() == [compare(number, v) for v in values], (compare, number)
        nearest = min(max(number, info.min), info.max)
        assert td.maximum(x, number).tolist() == td.clip(x, min=number).tolist() == [max(v, nearest) for v in values]
        assert td.minimum(x, number).tolist() == td.clip(x, max=number).tolist() == [min(v, nearest) for v in values]


@pytest.mark.parametrize("dtype", [td.float32, td.int8, td.uint64], ids=str)
def test_complex_numbers_given_as_real_ones_lose_their_imaginary_part(dtype):
    z = td.asarray([1 + 2j, 3 - 1j])
    for x in (td.asarray(z, dtype=dtype), td.tensor(z, dtype=dtype), z.to(dtype)):
        assert x.dtype is dtype and x.tolist() == [1, 3]
    assert td.linalg.trace(td.ones((2, 2), dtype=td.complex64), dtype=dtype).item() == 2
    with pytest.raises(TypeError, match="imaginary"):
        td.astype(z, dtype)


@pytest.mark.parametrize("dtype", [td.complex64, td.complex128], ids=str)
def test_triangular_factors_have_plain_zeros(dtype):
    x = td.asarray([[4, 2j], [-2j, 5]], dtype=dtype)
    upper = td.linalg.cholesky(x, upper=True)
    assert [str(z) for z in td.reshape(upper, (-1,)).tolist()][2] == "0j"
    assert td.allclose(td.matrix_transpose(td.conj(upper)) @ upper, x)


def test_diagonals_far_outside_are_alike():
    for k in (10**30, -(10**30), 2**63 - 1, -(2**63)):
        assert not td.eye(3, 4, k=k).any()
    x = td.ones(2, 3)
    for k, lower in ((2**63 - 1, 1), (-(2**63), 0)):
        assert bool((td.tril(x, k) == lower).all()) and bool((td.triu(x, k) == 1 - lower).all())
