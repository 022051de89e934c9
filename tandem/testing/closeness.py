"""assert_close: tensors, and containers of them, that should be equal but for rounding."""

from __future__ import annotations

import tandem as td
from tandem.tensors.methods import Tensor

# (relative, absolute) by the coarser of the two types; everything else must be equal.
TOLERANCE = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip


def assert_close(actual, expected, *, rtol: float | None = None, atol: float | None = None, equal_nan: bool = False,
                 check_device: bool = True, check_dtype: bool = True, msg=None, allow_subclasses: bool = True,
                 check_layout: bool = True, check_stride: bool = False):  # fmt: skip
    """Raises AssertionError, which says where and by how much, unless |actual - expected| <= atol + rtol * |expected|.
    Tensors, numbers, arrays, and tuples, lists and dictionaries of them. check_layout is PyTorch's; all tensors are dense here.

    >>> td.testing.assert_close(td.tensor([1.0, 2.0]), td.tensor([1.0, 2.0000001]))
    """
    if (rtol is None) != (atol is None):
        raise ValueError("assert_close: give both rtol and atol, or neither")
    options = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan, "device": check_device, "dtype": check_dtype,
               "stride": check_stride, "subclasses": allow_subclasses}  # fmt: skip
    problem = _compare(actual, expected, "", options)
    if problem:
        raise AssertionError(msg(problem) if callable(msg) else msg or problem)


# What PyTorch's older function allows.
_LOOSE = {"float16": (1e-3, 1e-3), "float32": (1e-4, 1e-5), "float64": (1e-5, 1e-8)}


def assert_allclose(
    actual, expected, rtol: float | None = None, atol: float | None = None, equal_nan: bool = True, msg=""
):
    """PyTorch's older assert_close: tolerances are wider, dtypes may differ, and NaN equals NaN.

    >>> td.testing.assert_allclose(td.tensor([1.0]), [1.00001])
    """
    actual = actual if isinstance(actual, Tensor) else td.tensor(actual)
    expected = expected if isinstance(expected, Tensor) else td.tensor(expected, dtype=actual.dtype)
    if rtol is None and atol is None:
        both = [_LOOSE.get(t.dtype.name, (0.0, 0.0)) for t in (actual, expected)]
        rtol, atol = (max(pair) for pair in zip(*both, strict=True))
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=msg or None)


def _compare(actual, expected, path: str, options) -> str | None:
    where = f" at {path}" if path else ""
    if isinstance(expected, dict) or isinstance(actual, dict):
        if not (isinstance(actual, dict) and isinstance(expected, dict)):
            return f"{type(actual).__name__} and {type(expected).__name__}{where}"
        if actual.keys() != expected.keys():
            return f"different keys{where}: {sorted(map(str, actual.keys() ^ expected.keys()))}"
        pairs = [(key, actual[key], expected[key]) for key in expected]
    elif isinstance(expected, (tuple, list)) and isinstance(actual, (tuple, list)):
        if len(actual) != len(expected):
            return f"lengths {len(actual)} and {len(expected)}{where}"
        pairs = [(i, *both) for i, both in enumerate(zip(actual, expected, strict=True))]
    else:
        return _compare_tensors(actual, expected, where, options)
    problems = (_compare(a, e, f"{path}[{key!r}]", options) for key, a, e in pairs)
    return next((p for p in problems if p), None)


def _compare_tensors(actual, expected, where: str, options) -> str | None:
    loose = not (isinstance(actual, Tensor) and isinstance(expected, Tensor))  # numbers and arrays carry no intention
    a, e = (x.detach() if isinstance(x, Tensor) else td.asarray(x) for x in (actual, expected))
    if a.shape != e.shape:
        return f"shapes {a.shape} and {e.shape}{where}"
    if options["stride"] and not loose and a.stride() != e.stride():
        return f"strides {a.stride()} and {e.stride()}{where}"
    if not options["subclasses"] and type(actual) is not type(expected):
        return f"{type(actual).__name__} and {type(expected).__name__}{where}"
    if options["device"] and not loose and a.device != e.device:
        return f"devices {a.device} and {e.device}{where}"
    if options["dtype"] and not loose and a.dtype is not e.dtype:
        return f"dtypes {a.dtype} and {e.dtype}{where}"
    tolerances = [TOLERANCE.get(t.dtype.name, (0.0, 0.0)) for t in (a, e)]
    rtol = max(t[0] for t in tolerances) if options["rtol"] is None else options["rtol"]
    atol = max(t[1] for t in tolerances) if options["atol"] is None else options["atol"]
    a, e = a.cpu(), e.cpu()
    inexact = a.dtype.is_inexact or e.dtype.is_inexact
    if inexact:
        wide = td.complex128 if a.dtype.is_complex or e.dtype.is_complex else td.float64
        a, e = a.to(wide), e.to(wide)
    off = ~td.isclose(a, e, rtol=rtol, atol=atol, equal_nan=options["equal_nan"]) if inexact else a != e
    count = int(off.sum())
    if not count:
        return None
    if not inexact:
        a, e = a.to(td.float64), e.to(td.float64)
    gap = td.where(off, (a - e).abs(), td.zeros_like(a.abs()))
    gap = td.where(gap.isnan(), td.full_like(gap, float("inf")), gap)
    worst = int(gap.reshape(-1).argmax())
    index, rest = [], worst
    for n in reversed(a.shape):
        rest, i = divmod(rest, n)
        index.insert(0, i)
    one, other = (t.reshape(-1)[worst].item() for t in (a, e))
    relative = abs(one - other) / abs(other) if other else float("inf")
    return (
        f"{count} of {a.size} elements differ{where}; most at {tuple(index)}: {one!r} and {other!r}, "
        f"{abs(one - other):.3g} apart, {relative:.3g} of it (allowed: {atol:g} + {rtol:g} * |expected|)"
    )
