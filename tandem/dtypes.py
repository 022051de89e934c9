"""Element types and the promotion rules of the Array API standard.

Kinds the standard leaves open follow the habit of deep-learning users: an integer meeting a float takes the float's type
(int64 with float32 is float32), and a Python number never widens a tensor of its own kind.
"""

from __future__ import annotations


class DType:
    """One element type: `td.float32` and its kin. Compares by identity; `code` is shared with src/tensor/dtype.h."""

    __slots__ = ("name", "code", "itemsize", "kind", "short", "_numpy")

    def __init__(self, name, code, itemsize, kind, short):
        self.name = name
        self.code = code
        self.itemsize = itemsize
        self.kind = kind  # one of "bool", "int", "uint", "float", "complex"
        self.short = short  # as graphs print it: f32
        self._numpy = None

    @property
    def numpy(self):
        """NumPy's dtype for this type."""
        if self._numpy is None:
            import numpy as np

            if self.name == "bfloat16":
                import ml_dtypes

                self._numpy = np.dtype(ml_dtypes.bfloat16)
            else:
                self._numpy = np.dtype(self.name)
        return self._numpy

    @property
    def is_floating(self) -> bool:
        return self.kind == "float"

    is_floating_point = is_floating  # PyTorch's name

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def is_inexact(self) -> bool:
        return self.kind in ("float", "complex")

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def range(self) -> tuple[int, int]:
        """The least and the largest number of an integer type."""
        bits = 8 * self.itemsize
        return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if self.kind == "int" else (0, 2**bits - 1)

    @property
    def is_signed(self) -> bool:
        return self.kind in ("int", "float", "complex")

    def __repr__(self):
        return f"tandem.{self.name}"

    def __str__(self):
        return self.name

    def __reduce__(self):
        return (by_name, (self.name,))


bool_ = DType("bool", 0, 1, "bool", "b1")
int8 = DType("int8", 1, 1, "int", "i8")
int16 = DType("int16", 2, 2, "int", "i16")
int32 = DType("int32", 3, 4, "int", "i32")
int64 = DType("int64", 4, 8, "int", "i64")
uint8 = DType("uint8", 5, 1, "uint", "u8")
uint16 = DType("uint16", 6, 2, "uint", "u16")
uint32 = DType("uint32", 7, 4, "uint", "u32")
uint64 = DType("uint64", 8, 8, "uint", "u64")
float16 = DType("float16", 9, 2, "float", "f16")
bfloat16 = DType("bfloat16", 10, 2, "float", "bf16")
float32 = DType("float32", 11, 4, "float", "f32")
float64 = DType("float64", 12, 8, "float", "f64")
complex64 = DType("complex64", 13, 8, "complex", "c64")
complex128 = DType("complex128", 14, 16, "complex", "c128")

ALL = (
    bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64,
    complex64, complex128,
)  # fmt: skip
# PyTorch's names, which are td.long and so on. A name in a string, such as "int", means NumPy's type where the two differ.
TORCH_NAMES = {
    "half": float16, "float": float32, "double": float64, "short": int16, "int": int32, "long": int64, "cfloat": complex64,
    "cdouble": complex128,
}  # fmt: skip
_BY_NAME = {t.name: t for t in ALL} | {"bool_": bool_, "half": float16, "float": float32, "double": float64}


def by_name(name: str) -> DType:
    return _BY_NAME[name]


def is_name(name: str) -> bool:
    return name in _BY_NAME


def as_dtype(value) -> DType:
    """The DType for a DType, a name, a NumPy dtype or one of Python's types: float is float64, complex complex128, as in NumPy."""
    if isinstance(value, DType):
        return value
    if value is bool:
        return bool_
    if value is int:
        return int64
    if value is float:
        return float64
    if value is complex:
        return complex128
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]
    try:
        import numpy as np  # here, so that `import tandem` need not wait for it

        return _BY_NAME[np.dtype(value).name]
    except (TypeError, KeyError):
        raise TypeError(
            f"{value!r} is not a dtype that Tandem knows; known are {', '.join(t.name for t in ALL)}"
        ) from None


REAL_PART = {complex64: float32, complex128: float64}
COMPLEX_OF = {float32: complex64, float64: complex128}


def part_dtype(dtype: DType) -> DType:
    """The type of the real and imaginary parts of a complex type; any other type itself."""
    return REAL_PART.get(dtype, dtype)


_SIGNED = (int8, int16, int32, int64)
_UNSIGNED = (uint8, uint16, uint32, uint64)
_KIND_ORDER = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}


def _promote(a: DType, b: DType) -> DType:
    if a is b:
        return a
    order_a, order_b = _KIND_ORDER[a.kind], _KIND_ORDER[b.kind]
    if order_a < order_b:
        a, b, order_a, order_b = b, a, order_b, order_a
    if order_a == 3:  # complex with something: as wide as the widest real part
        if order_b == 3 or b is float64:
            return complex128 if complex128 in (a, b) or b is float64 else complex64
        return a
    if order_a != order_b:
        return a
    if order_a == 2:
        if {a, b} == {float16, bfloat16}:
            return float32
        return a if a.itemsize > b.itemsize else b
    if a.kind == b.kind:
        return a if a.itemsize > b.itemsize else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.itemsize > unsigned.itemsize:
        return signed
    return _SIGNED[_UNSIGNED.index(unsigned) + 1] if unsigned is not uint64 else float32


_TABLE = {(a, b): _promote(a, b) for a in ALL for b in ALL}


def promote(a: DType, b: DType) -> DType:
    return _TABLE[a, b]


_default = float32


def default_float() -> DType:
    """The type of floats that nothing else is said about; td.set_default_dtype changes it."""
    return _default


def default_complex() -> DType:
    return complex128 if _default is float64 else complex64


def set_default_float(dtype: DType):
    global _default
    _default = dtype


def promote_single(strong: DType, single: DType) -> DType:
    """PyTorch's type of a tensor of type `strong` that has axes, meeting one of type `single` that has none."""
    order, single_order = _KIND_ORDER[strong.kind], _KIND_ORDER[single.kind]
    if single_order <= order:
        return strong
    if single.is_complex and strong.is_floating:
        return complex128 if strong is float64 else complex64
    return promote(strong, single)


def promote_weak(strong: DType, number_kind: str) -> DType:
    """The type of a tensor of type `strong` meeting a Python number of kind "bool", "int", "float" or "complex"."""
    order, number_order = _KIND_ORDER[strong.kind], _KIND_ORDER[number_kind]
    if number_order <= order:
        return strong
    if number_kind == "complex":
        return complex128 if strong is float64 else default_complex() if not strong.is_inexact else complex64
    return _default if number_kind == "float" else int64
