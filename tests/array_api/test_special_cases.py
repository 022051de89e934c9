"""The table of special cases of the standard, and those of integers and reductions."""

import itertools
import math

import pytest

import tandem as td
from tests.array_api.special_cases import BINARY, UNARY, agrees, cases

FLOATS = [td.float32, td.float64]


def grouped(text: str):
    return {name: list(found) for name, found in itertools.groupby(cases(text), key=lambda case: case[0])}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("name", "table"), (grouped(UNARY) | grouped(BINARY)).items())
def test_special_cases(name, table, dtype):
    # One call for all cases, so that vectors and remainders of loops both take part.
    operands = [td.asarray(list(column), dtype=dtype) for column in zip(*(case[1] for case in table), strict=True)]
    results = getattr(td, name)(*operands).tolist()
    for (_, given, allowed, near), got in zip(table, results, strict=True):
        if name == "copysign" and math.isnan(given[1]):
            got = abs(got)
        assert any(agrees(got, wanted, near) for wanted in allowed), f"{name}{given} is {got}, not {allowed}"


OPERATORS = {
    "add": "__add__", "subtract": "__sub__", "multiply": "__mul__", "divide": "__truediv__", "pow": "__pow__",
    "remainder": "__mod__", "floor_divide": "__floordiv__",
}  # fmt: skip


@pytest.mark.parametrize(("name", "operator"), OPERATORS.items())
def test_operators_have_the_same_special_cases(name, operator):
    table = grouped(BINARY)[name]
    x, y = (td.asarray(list(column)) for column in zip(*(case[1] for case in table), strict=True))
    inplace = td.asarray(x, copy=True)
    inplace = getattr(inplace, operator.replace("__", "__i", 1))(y)
    for results in (getattr(x, operator)(y), getattr(y, operator.replace("__", "__r", 1))(x), inplace):
        for (_, given, allowed, near), got in zip(table, results.tolist(), strict=True):
            assert any(agrees(got, wanted, near) for wanted in allowed), f"{operator}{given} is {got}, not {allowed}"


@pytest.mark.parametrize("dtype", [td.int8, td.int16, td.int32, td.int64], ids=str)
def test_integers(dtype):
    x, y = (td.asarray(v, dtype=dtype) for v in ([7, 7, -7, -7, 0], [2, -2, 2, -2, 3]))
    assert (x // y).tolist() == [3, -4, -4, 3, 0]
    assert (x % y).tolist() == [1, -1, 1, -1, 0]  # the sign of the divisor
    assert (x << td.asarray([1, 0, 1, 0, 5], dtype=dtype)).tolist() == [14, 7, -14, -7, 0]
    assert (x >> td.asarray([1, 0, 1, 2, 5], dtype=dtype)).tolist() == [3, 7, -4, -2, 0]  # the sign moves in
    assert td.abs(x).tolist() == [7, 7, 7, 7, 0] and td.sign(x).tolist() == [1, 1, -1, -1, 0]
    for name in ("ceil", "floor", "round", "trunc"):
        assert getattr(td, name)(x).tolist() == x.tolist() and getattr(td, name)(x).dtype is dtype
    assert td.isfinite(x).tolist() == [True] * 5 and not td.any(td.isnan(x)) and not td.any(td.isinf(x))


@pytest.mark.parametrize("dtype", [td.uint8, td.uint16, td.uint32, td.uint64], ids=str)
def test_unsigned_integers_wrap_around_and_use_their_whole_range(dtype):
    top = td.iinfo(dtype).max
    x = td.asarray([0, 1, top, top - 1], dtype=dtype)
    assert (x + td.asarray(1, dtype=dtype)).tolist() == [1, 2, 0, top]
    assert (x - td.asarray(1, dtype=dtype)).tolist() == [top, 0, top - 1, top - 2]
    assert (x // td.asarray(2, dtype=dtype)).tolist() == [0, 0, top // 2, (top - 1) // 2]
    assert (x % td.asarray(10, dtype=dtype)).tolist() == [0, 1, top % 10, (top - 1) % 10]
    assert (~x).tolist() == [top, top - 1, 0, 1] and (x >> td.asarray(1, dtype=dtype)).tolist()[2] == top >> 1
    assert (x > td.asarray(1, dtype=dtype)).tolist() == [False, False, True, True]
    assert td.max(x).item() == top and td.sort(x).tolist() == [0, 1, top - 1, top]
    assert td.sign(x).tolist() == [0, 1, 1, 1] and td.argmax(x).item() == 2


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_reductions(dtype):
    nothing, nan = td.zeros((0, 2), dtype=dtype), td.asarray([1.0, math.nan, 2.0], dtype=dtype)
    assert td.sum(nothing, axis=0).tolist() == [0, 0] and td.prod(nothing, axis=0).tolist() == [1, 1]
    assert td.all(nothing).item() is True and td.any(nothing).item() is False
    for name in ("mean", "std", "var"):
        assert math.isnan(getattr(td, name)(nothing).item())
    for name in ("max", "min", "sum", "prod", "mean", "std", "var"):
        assert math.isnan(getattr(td, name)(nan).item()), name
    for name in ("all", "any"):
        assert getattr(td, name)(nan).item() is True
    for name in ("cumulative_sum", "cumulative_prod"):
        assert [math.isnan(v) for v in getattr(td, name)(nan).tolist()] == [False, True, True]
    assert math.isnan(td.var(td.ones(1, dtype=dtype), correction=1.0).item())


def test_clip_passes_nan_on():
    x = td.asarray([1.0, 5.0, math.nan])
    assert td.clip(x, 2.0, 4.0).tolist()[:2] == [2, 4] and math.isnan(td.clip(x, 2.0, 4.0).tolist()[2])
    assert all(math.isnan(v) for v in td.clip(x, min=td.full((3,), math.nan)).tolist())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_angles_far_from_zero(dtype):
    far = [1e15, 2.0**48, 1e22, 3e38, 1e37, 12345678.0]
    if dtype is td.float64:
        far += [1e100, 1.7976931348623157e308, 6381956970095103 * 2.0**797]  # the last is nearest to a multiple of pi/2
    x = td.asarray(far + [-v for v in far] + [0.5, math.inf], dtype=dtype)
    tolerance = 1e-15 if dtype is td.float64 else 1e-7
    for name in ("sin", "cos", "tan"):
        *results, infinite = getattr(td, name)(x).tolist()
        assert math.isnan(infinite)
        for got, angle in zip(results, x.tolist(), strict=False):
            wanted = getattr(math, name)(angle)
            steep = 1 + wanted**2 if name == "tan" else 1
            assert abs(got - wanted) <= tolerance * steep, f"{name}({angle})"
