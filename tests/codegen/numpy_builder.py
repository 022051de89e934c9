"""The scalar builder's interface on NumPy arrays: what an expression means, without any code generation."""

import functools

import numpy as np

from tandem import dtypes
from tandem.codegen import mathlib
from tandem.codegen.llvm.angle import FAR, reduced_angle


class Value:
    """An array with the operators of an Expr. Types must agree; only Python numbers adapt."""

    def __init__(self, array):
        self.array = np.asarray(array)
        self.dtype = dtypes.as_dtype(self.array.dtype)

    def _other(self, other):
        if not isinstance(other, Value):
            return constant(other, self.dtype)
        if other.dtype is not self.dtype:
            raise TypeError(f"{self.dtype} meets {other.dtype}")
        return other.array

    def __invert__(self):
        return Value(~self.array)

    def __neg__(self):
        return Value(-self.array)

    __hash__ = None


def constant(value, dtype):
    if dtype.kind in ("int", "uint"):
        bits = dtype.itemsize * 8
        value = int(value) & ((1 << bits) - 1)
        return np.array(value, f"uint{bits}").view(dtype.numpy)
    return np.array(value, dtype.numpy)


def _operator(name, function, reverse=True):
    def forward(self, other):
        with np.errstate(all="ignore"):
            return Value(function(self.array, self._other(other)))

    def backward(self, other):
        with np.errstate(all="ignore"):
            return Value(function(self._other(other), self.array))

    setattr(Value, f"__{name}__", forward)
    if reverse:
        setattr(Value, f"__r{name}__", backward)


for _name, _function in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "lshift": np.left_shift, "rshift": np.right_shift,
}.items():  # fmt: skip
    _operator(_name, _function)
for _name, _function in {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}.items():  # fmt: skip
    _operator(_name, _function, reverse=False)


class NumpyBuilder:
    approximates = False
    as_written = True

    def __getattr__(self, name: str):
        return functools.partial(getattr(mathlib, name), self)

    def div_near(self, x, y):
        return x / y

    def value(self, array):
        return Value(array)

    def const(self, value, dtype):
        return Value(constant(value, dtype))

    def cast(self, x, dtype):
        with np.errstate(all="ignore"):
            return Value(x.array.astype(dtype.numpy))

    def bitcast(self, x, dtype):
        return Value(x.array.view(dtype.numpy))

    def where(self, condition, x, y):
        if not isinstance(x, Value):
            x = self.const(x, y.dtype)
        return Value(np.where(condition.array, x.array, x._other(y)))

    def rarely(self, condition, slow, x):
        return self.where(condition, slow, x)

    def fma(self, x, y, z):
        y = y if isinstance(y, Value) else self.const(y, x.dtype)
        z = z if isinstance(z, Value) else self.const(z, x.dtype)
        with np.errstate(all="ignore"):
            if (
                x.dtype is dtypes.float32
            ):  # the product is exact; the sum may be rounded twice, once in 2^29 cases or so
                wide = x.array.astype(np.float64) * y.array.astype(np.float64) + z.array.astype(np.float64)
                return Value(wide.astype(np.float32))
            return Value(_fma64(x.array, y.array, z.array))

    def copysign(self, x, y):
        return Value(np.copysign(x.array, x._other(y)))

    def near_angle(self, x):
        far = np.isfinite(x.array) & (np.abs(x.array) >= FAR)
        near = [reduced_angle(float(v)) if f else v for v, f in zip(x.array.ravel(), far.ravel(), strict=True)]
        return Value(np.array(near, np.float64).reshape(x.array.shape))

    def isnan(self, x):
        return Value(np.isnan(x.array))

    def min(self, x, y):
        return Value(np.minimum(x.array, x._other(y)))  # NaN wins

    def max(self, x, y):
        return Value(np.maximum(x.array, x._other(y)))


class ApproximatingBuilder(NumpyBuilder):
    """Like a device whose instructions for powers and quotients are off by up to two units in the last place."""

    approximates = True

    def exp_near(self, x):
        with np.errstate(all="ignore"):
            return _off(np.exp(x.array.astype(np.float64)).astype(np.float32))

    def exp2_near(self, x):
        with np.errstate(all="ignore"):
            return _off(np.exp2(x.array.astype(np.float64)).astype(np.float32))

    def div_near(self, x, y):
        with np.errstate(all="ignore"):
            return _off(x.array / y.array)


def _off(exact):
    steps = np.random.default_rng(0).integers(-2, 3, exact.shape)
    moved = exact + (np.spacing(np.abs(exact)) * steps).astype(exact.dtype)
    return Value(np.where(np.isfinite(exact) & (exact != 0), moved, exact))


def _unary(name, function):
    def method(self, x):
        with np.errstate(all="ignore"):
            return Value(function(x.array))

    setattr(NumpyBuilder, name, method)


for _name, _function in {
    "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
}.items():  # fmt: skip
    _unary(_name, _function)


def _fma64(x, y, z):
    """x * y + z with one rounding, nearly always: Dekker's exact product, then exact sums."""
    x, y, z = np.broadcast_arrays(x, y, z)
    product = x * y
    # Splitting needs some room; far from the middle of the range scale, which is exact.
    _, ex = np.frexp(x)
    _, ey = np.frexp(y)
    xs, ys = np.ldexp(x, -ex), np.ldexp(y, -ey)
    p = xs * ys
    xh = xs * 134217729.0
    xh = xh - (xh - xs)
    yh = ys * 134217729.0
    yh = yh - (yh - ys)
    xl, yl = xs - xh, ys - yh
    error = ((xh * yh - p) + xh * yl + xl * yh) + xl * yl
    zs = np.ldexp(z, -(ex + ey))
    total = p + zs
    back = total - p
    rest = (p - (total - back)) + (zs - back)
    exact = np.ldexp(total + (rest + error), ex + ey)
    usable = np.isfinite(zs) & np.isfinite(product) & np.isfinite(z) & ((zs != 0) | (z == 0)) & (product != 0)
    return np.where(usable & np.isfinite(exact), exact, product + z)
