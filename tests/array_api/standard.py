"""What the Array API standard 2025.12 has in its main namespace, as signatures in Python's own notation."""

import inspect

ELEMENTWISE_UNARY = """
abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp
expm1 floor imag isfinite isinf isnan log log10 log1p log2
logical_not negative positive real reciprocal round sign signbit sin sinh sqrt square tan tanh trunc
"""
ELEMENTWISE_BINARY = """
add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal floor_divide greater
greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum minimum multiply nextafter not_equal pow
remainder subtract
"""

FUNCTIONS = """
all(x, /, *, axis=None, keepdims=False)
any(x, /, *, axis=None, keepdims=False)
arange(start, /, stop=None, step=1, *, dtype=None, device=None)
argmax(x, /, *, axis=None, keepdims=False)
argmin(x, /, *, axis=None, keepdims=False)
argsort(x, /, *, axis=-1, descending=False, stable=True)
asarray(obj, /, *, dtype=None, device=None, copy=None)
astype(x, dtype, /, *, copy=True, device=None)
broadcast_arrays(*arrays)
broadcast_shapes(*shapes)
broadcast_to(x, /, shape)
can_cast(from_, to, /)
clip(x, /, min=None, max=None)
concat(arrays, /, *, axis=0)
count_nonzero(x, /, *, axis=None, keepdims=False)
cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False)
cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False)
diff(x, /, *, axis=-1, n=1, prepend=None, append=None)
empty(shape, *, dtype=None, device=None)
empty_like(x, /, *, dtype=None, device=None)
expand_dims(x, /, axis)
eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)
finfo(type, /)
flip(x, /, *, axis=None)
from_dlpack(x, /, *, device=None, copy=None)
full(shape, fill_value, *, dtype=None, device=None)
full_like(x, /, fill_value, *, dtype=None, device=None)
iinfo(type, /)
isdtype(dtype, kind)
isin(x1, x2, /, *, invert=False)
linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True)
matmul(x1, x2, /)
matrix_transpose(x, /)
max(x, /, *, axis=None, keepdims=False)
mean(x, /, *, axis=None, keepdims=False)
meshgrid(*arrays, indexing='xy')
min(x, /, *, axis=None, keepdims=False)
moveaxis(x, source, destination, /)
nonzero(x, /)
ones(shape, *, dtype=None, device=None)
ones_like(x, /, *, dtype=None, device=None)
permute_dims(x, /, axes)
prod(x, /, *, axis=None, dtype=None, keepdims=False)
repeat(x, repeats, /, *, axis=None)
reshape(x, /, shape, *, copy=None)
result_type(*arrays_and_dtypes)
roll(x, /, shift, *, axis=None)
searchsorted(x1, x2, /, *, side='left', sorter=None)
sort(x, /, *, axis=-1, descending=False, stable=True)
squeeze(x, /, axis)
stack(arrays, /, *, axis=0)
std(x, /, *, axis=None, correction=0.0, keepdims=False)
sum(x, /, *, axis=None, dtype=None, keepdims=False)
take(x, indices, /, *, axis=None)
take_along_axis(x, indices, /, *, axis=-1)
tensordot(x1, x2, /, *, axes=2)
tile(x, repetitions, /)
tril(x, /, *, k=0)
triu(x, /, *, k=0)
unique_all(x, /)
unique_counts(x, /)
unique_inverse(x, /)
unique_values(x, /)
unstack(x, /, *, axis=0)
var(x, /, *, axis=None, correction=0.0, keepdims=False)
vecdot(x1, x2, /, *, axis=-1)
where(condition, x1, x2, /)
zeros(shape, *, dtype=None, device=None)
zeros_like(x, /, *, dtype=None, device=None)
__array_namespace_info__()
"""

LINALG = """
cholesky(x, /, *, upper=False)
cross(x1, x2, /, *, axis=-1)
det(x, /)
diagonal(x, /, *, offset=0)
eig(x, /)
eigh(x, /)
eigvals(x, /)
eigvalsh(x, /)
inv(x, /)
matmul(x1, x2, /)
matrix_norm(x, /, *, keepdims=False, ord='fro')
matrix_power(x, n, /)
matrix_rank(x, /, *, rtol=None)
matrix_transpose(x, /)
outer(x1, x2, /)
pinv(x, /, *, rtol=None)
qr(x, /, *, mode='reduced')
slogdet(x, /)
solve(x1, x2, /)
svd(x, /, *, full_matrices=True)
svdvals(x, /)
tensordot(x1, x2, /, *, axes=2)
trace(x, /, *, offset=0, dtype=None)
vecdot(x1, x2, /, *, axis=-1)
vector_norm(x, /, *, axis=None, keepdims=False, ord=2)
"""

FFT = """
fft(x, /, *, n=None, axis=-1, norm='backward')
ifft(x, /, *, n=None, axis=-1, norm='backward')
fftn(x, /, *, s=None, axes=None, norm='backward')
ifftn(x, /, *, s=None, axes=None, norm='backward')
rfft(x, /, *, n=None, axis=-1, norm='backward')
irfft(x, /, *, n=None, axis=-1, norm='backward')
rfftn(x, /, *, s=None, axes=None, norm='backward')
irfftn(x, /, *, s=None, axes=None, norm='backward')
hfft(x, /, *, n=None, axis=-1, norm='backward')
ihfft(x, /, *, n=None, axis=-1, norm='backward')
fftfreq(n, /, *, d=1.0, dtype=None, device=None)
rfftfreq(n, /, *, d=1.0, dtype=None, device=None)
fftshift(x, /, *, axes=None)
ifftshift(x, /, *, axes=None)
"""

INFO = """
capabilities()
default_device()
default_dtypes(*, device=None)
devices()
dtypes(*, device=None, kind=None)
"""

BINARY_OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
COMPARISONS = "eq ne lt le gt ge"

METHODS = """
__array_namespace__(*, api_version=None)
__complex__()
__bool__()
__float__()
__index__()
__int__()
__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)
__dlpack_device__()
__getitem__(key, /)
__setitem__(key, value, /)
__abs__()
__invert__()
__neg__()
__pos__()
to_device(device, /, *, stream=None)
"""

_DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"
DTYPES = _DTYPES.split()
ATTRIBUTES = ["dtype", "device", "mT", "ndim", "shape", "size", "T"]


def parse(text: str) -> dict[str, inspect.Signature]:
    """{name: signature} of lines like `f(x, /, *, axis=None)`."""
    found = {}
    for line in text.split("\n"):
        if line:
            space: dict = {}
            exec(f"def {line}: pass", space)
            name = line.partition("(")[0]
            found[name] = inspect.signature(space[name])
    return found


LINALG, FFT = parse(LINALG), parse(FFT)


def namespace() -> dict[str, inspect.Signature]:
    return (
        parse("\n".join(f"{name}(x, /)" for name in ELEMENTWISE_UNARY.split()))
        | parse("\n".join(f"{name}(x1, x2, /)" for name in ELEMENTWISE_BINARY.split()))
        | parse(FUNCTIONS)
    )


def methods() -> dict[str, inspect.Signature]:
    names = [f"__{prefix}{name}__" for name in BINARY_OPERATORS.split() for prefix in ("", "r", "i")]
    names += [f"__{name}__" for name in COMPARISONS.split()]
    return parse(METHODS) | parse("\n".join(f"{name}(other, /)" for name in names))
