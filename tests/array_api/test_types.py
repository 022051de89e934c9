"""Type promotion, questions about types, and what the namespace says of itself."""

import pytest

import tandem as td
from tests.array_api import standard

DTYPES = [getattr(td, name) for name in standard.DTYPES]
BY_NAME = dict(zip(standard.DTYPES, DTYPES, strict=True))

# The standard's tables: row and column promote to the entry. Kinds that are not mixed in them are left to the library.
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
FLOATING = ["float32", "float64", "complex64", "complex128"]
MIXED = {
    "int8": "int16 int32 int64 -", "int16": "int16 int32 int64 -", "int32": "int32 int32 int64 -", "int64": "int64 int64 int64 -",
}  # fmt: skip
FLOAT_TABLE = {
    "float32": "float32 float64 complex64 complex128", "float64": "float64 float64 complex128 complex128",
    "complex64": "complex64 complex128 complex64 complex128", "complex128": "complex128 complex128 complex128 complex128",
}  # fmt: skip


def promotions():
    yield "bool", "bool", "bool"
    for kind in (SIGNED, UNSIGNED):
        for i, a in enumerate(kind):
            for j, b in enumerate(kind):
                yield a, b, kind[max(i, j)]
    for a, row in MIXED.items():
        for b, entry in zip(UNSIGNED, row.split(), strict=True):
            if entry != "-":
                yield a, b, entry
                yield b, a, entry
    for a, row in FLOAT_TABLE.items():
        for b, entry in zip(FLOATING, row.split(), strict=True):
            yield a, b, entry


def test_promotion():
    for a, b, wanted in promotions():
        a, b, wanted = BY_NAME[a], BY_NAME[b], BY_NAME[wanted]
        assert td.result_type(a, b) is wanted, (a, b)
        assert td.can_cast(a, wanted) and (a.is_complex or td.can_cast(td.zeros(1, dtype=a), wanted)), (a, b)
        assert td.can_cast(a, b) is (wanted is b), (a, b)
        if not wanted.is_complex:
            assert td.concat([td.zeros(1, dtype=a), td.zeros(1, dtype=b)]).dtype is wanted, (a, b)


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "subtract"])
def test_operands_promote(name):
    for a, b, wanted in promotions():
        if wanted not in ("bool", "complex64", "complex128"):
            x, y = td.ones((2, 1), dtype=BY_NAME[a]), td.ones((3,), dtype=BY_NAME[b])
            out = getattr(td, name)(x, y)
            assert (out.dtype, out.shape) == (BY_NAME[wanted], (2, 3)), (a, b)


def test_python_numbers_take_the_type_of_the_tensor():
    for dtype in DTYPES[1:-2]:
        x = td.ones(2, dtype=dtype)
        numbers = (1, 1.0) if dtype.is_floating else (1,)
        for number in numbers:
            assert td.result_type(x, number) is dtype is td.result_type(number, dtype)
            for out in (x + number, number - x, x * number, td.maximum(x, number), td.minimum(number, x)):
                assert out.dtype is dtype
            assert td.where(x == 1, x, number).dtype is td.where(x == 1, number, x).dtype is dtype
    assert (td.asarray([True]) & True).dtype is td.bool
    assert td.result_type(td.float32, 1j) is td.complex64 and td.result_type(td.float64, 1j) is td.complex128
    with pytest.raises(ValueError):
        td.result_type(1, 2.0)


def test_kinds():
    table = {
        "bool": ["bool"], "signed integer": SIGNED, "unsigned integer": UNSIGNED, "integral": SIGNED + UNSIGNED,
        "real floating": FLOATING[:2], "complex floating": FLOATING[2:], "numeric": SIGNED + UNSIGNED + FLOATING,
    }  # fmt: skip
    info = td.__array_namespace_info__()
    for kind, names in table.items():
        assert {name for name, t in BY_NAME.items() if td.isdtype(t, kind)} == set(names)
        assert info.dtypes(kind=kind) == {name: BY_NAME[name] for name in names}
    assert td.isdtype(td.int8, (td.int16, "bool", "signed integer")) and not td.isdtype(td.int8, td.int16)
    assert td.isdtype(td.float16, "real floating") and td.isdtype(td.bfloat16, "real floating")
    with pytest.raises(ValueError, match="kinds are bool"):
        td.isdtype(td.int8, "int")


def test_limits():
    for dtype in DTYPES:
        if dtype.is_integer:
            limits = td.iinfo(dtype)
            assert limits.bits == 8 * dtype.itemsize and limits.dtype is dtype
            assert td.asarray([limits.min, limits.max], dtype=dtype).tolist() == [limits.min, limits.max]
            assert td.iinfo(td.ones(1, dtype=dtype)) == limits
    for dtype in (td.float16, td.bfloat16, td.float32, td.float64):
        limits = td.finfo(dtype)
        one = td.asarray(1.0, dtype=dtype)
        assert limits.bits == 8 * dtype.itemsize and limits.dtype is dtype and limits == td.finfo(one)
        assert (one + limits.eps).item() == 1 + limits.eps and (one + limits.eps / 2).item() == 1
        assert td.asarray(limits.max, dtype=dtype).item() == limits.max == -limits.min
        assert (td.asarray(limits.max, dtype=dtype) * 2).item() == float("inf")
        assert td.asarray(limits.smallest_normal, dtype=dtype).item() == limits.tiny > limits.smallest_subnormal > 0
        assert f"eps={limits.eps}" in repr(limits)
    assert td.finfo(td.complex128).dtype is td.float64 and td.finfo(td.complex64) == td.finfo(td.float32)
    with pytest.raises(TypeError):
        td.finfo(td.int32)
    with pytest.raises(TypeError):
        td.iinfo(td.float32)


def test_results_of_sums_are_wide():
    for dtype in DTYPES[1:-2]:
        wanted = dtype if dtype.is_floating else td.int64 if dtype.is_signed else td.uint64
        x = td.ones((2, 3), dtype=dtype)
        for name in ("sum", "prod"):
            assert getattr(td, name)(x).dtype is wanted
            assert getattr(td, name)(x, axis=0, dtype=td.float64).dtype is td.float64
        for name in ("cumulative_sum", "cumulative_prod"):
            out = getattr(td, name)(x, axis=1, include_initial=True)
            assert out.dtype is wanted and out.shape == (2, 4)
            assert out[0, 0].item() == (name == "cumulative_prod")
        assert td.count_nonzero(x, axis=0).dtype is td.argmax(x).dtype is td.argsort(x).dtype is td.int64


def test_the_namespace_describes_itself():
    info = td.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 32}
    device = info.default_device()
    assert device in info.devices() and isinstance(info.devices(), tuple)
    assert info.dtypes(device=device) == BY_NAME
    defaults = info.default_dtypes(device=device)
    assert td.zeros(1).dtype is td.asarray([1.0]).dtype is defaults["real floating"]
    assert td.asarray([1]).dtype is td.arange(3).dtype is defaults["integral"]
    assert (
        td.asarray([1j]).dtype is defaults["complex floating"] and td.argmax(td.ones(3)).dtype is defaults["indexing"]
    )
    x = td.zeros((1,) * 16)
    assert x.__array_namespace__() is x.__array_namespace__(api_version="2025.12") is td
    with pytest.raises(ValueError, match="known versions"):
        x.__array_namespace__(api_version="1999.01")
    assert x.device == device and x.to_device(device) is x and td.zeros(1, device=device).device == device
    with pytest.raises(RuntimeError):
        x.to_device("nowhere")
